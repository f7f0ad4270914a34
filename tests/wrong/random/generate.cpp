#include "tests/wrong/random/generate.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <stdexcept>
#include <utility>

#include "tests/wrong/faults.hpp"

namespace fp8_sdpa::wrong {
namespace {

using Words = std::vector<std::string>;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Calls visit(begin, match) for each match of a pattern.
void for_each(const std::string& text, const char* pattern,
              const std::function<void(std::size_t, const std::smatch&)>& visit) {
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    visit(static_cast<std::size_t>(it->position()), *it);
  }
}

/// One after the last character of the bracketed text that begins at `at`.
std::size_t after_brackets(const std::string& text, std::size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '(' || text[at] == '{' || text[at] == '[') ++depth;
    if (text[at] == ')' || text[at] == '}' || text[at] == ']') --depth;
    if (depth == 0) return at + 1;
  }
  return at;
}

/// One after the literal or comment that begins at `at`; `at` if there is none.
std::size_t after_token(const std::string& text, std::size_t at) {
  if (text.compare(at, 2, "//") == 0) return std::min(text.find('\n', at), text.size());
  if (text.compare(at, 2, "/*") == 0) return text.find("*/", at + 2) + 2;
  const char quote = text[at];
  const bool separates_digits = quote == '\'' && at > 0 && is_word(text[at - 1]);
  if ((quote != '"' && quote != '\'') || separates_digits) return at;
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
  return end + 1;
}

/// The text with blanks in place of what is left alone.
std::string code_of(const std::string& text) {
  std::string code = text;
  const auto blank = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, code.size()); ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = after_token(text, at);
    blank(at, end);
    at = std::max(end, at + 1);
  }
  bool continues = false;
  for (std::size_t at = 0; at < code.size();) {
    const std::size_t end = std::min(code.find('\n', at), code.size());
    const std::size_t first = std::min(code.find_first_not_of(' ', at), end);
    const bool directive = continues || (first < end && code[first] == '#');
    continues = directive && end > at && text[end - 1] == '\\';
    if (directive) blank(at, end);
    at = end + 1;
  }
  for (std::size_t at = 0; (at = code.find("static_assert", at)) != std::string::npos;) {
    blank(at, after_brackets(code, code.find('(', at)));
  }
  return code;
}

void add_operators(const std::string& code, std::vector<Place>* places) {
  struct Change {
    const char* kind;
    std::map<std::string, Words> of;
  };
  static const Change kBinary[] = {
      {"comparison",
       {{"<", {"<=", ">"}},
        {"<=", {"<", ">="}},
        {">", {">=", "<"}},
        {">=", {">", "<="}},
        {"==", {"!=", "<=", ">="}},
        {"!=", {"==", "<", ">"}}}},
      {"operator",
       {{"+", {"-"}},    {"-", {"+"}},   {"*", {"+", "/"}}, {"/", {"*"}},   {"%", {"/", "*"}},
        {"<<", {">>"}},  {">>", {"<<"}}, {"&", {"|"}},      {"|", {"&"}},   {"^", {"|", "&"}},
        {"&&", {"||"}},  {"||", {"&&"}}, {"+=", {"-="}},    {"-=", {"+="}}, {"*=", {"/="}},
        {"/=", {"*="}},  {"|=", {"&="}}, {"&=", {"|="}},    {"^=", {"|="}}, {"<<=", {">>="}},
        {">>=", {"<<="}}}}};
  // Those of two operands have spaces around them; brackets of templates, references, signs have
  // not.
  for_each(code, " ([-+*/%<>=!&|^]+)(?=\\s)", [&](std::size_t at, const std::smatch& match) {
    for (const Change& change : kBinary) {
      const auto found = change.of.find(match[1]);
      if (found != change.of.end()) {
        places->push_back({at + 1, match[1], change.kind, found->second});
      }
    }
  });
  for_each(code, "\\+\\+|--", [&](std::size_t at, const std::smatch& match) {
    places->push_back({at, match.str(), "operator", {match.str() == "++" ? "--" : "++"}});
  });
  for_each(code, "!(?=[\\w(])", [&](std::size_t at, const std::smatch&) {
    places->push_back({at, "!", "operator", {""}});
  });
}

void add_constants(const std::string& code, std::vector<Place>* places) {
  for_each(code,
           "0x[0-9A-Fa-f']+(\\.[0-9A-Fa-f]*)?(p[-+]?\\d+)?[uUlLF]*|\\d[\\d']*(\\.\\d*)?(e[-+]?\\d+)"
           "?[uUlLfF]*",
           [&](std::size_t at, const std::smatch& match) {
             const std::string number = match.str();
             if (at > 0 && (is_word(code[at - 1]) || code[at - 1] == '.')) return;
             const bool whole =
                 match[1].length() + match[2].length() + match[3].length() + match[4].length() == 0;
             places->push_back({at, number, "constant",
                                whole ? Words{"(" + number + " + 1)", "(" + number + " - 1)"}
                                      : Words{"(2 * " + number + ")", "(-" + number + ")"}});
           });
  for_each(code, "\\b(true|false)\\b", [&](std::size_t at, const std::smatch& match) {
    places->push_back({at, match.str(), "constant", {match.str() == "true" ? "false" : "true"}});
  });
  for_each(code, "\\b\\w*(min|max)\\w*(?=\\()", [&](std::size_t at, const std::smatch& match) {
    const auto in = static_cast<std::size_t>(match.position(1) - match.position());
    const std::string other = match[1] == "min" ? "max" : "min";
    places->push_back({at, match.str(), "min and max", {match.str().replace(in, 3, other)}});
  });
}

/// "key_full" is {"key", "full"}; "kTileM" is {"k", "Tile", "M"}.
Words words_of(const std::string& name) {
  Words words(1);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool upper = std::isupper(static_cast<unsigned char>(name[i])) != 0;
    if (name[i] == '_' || upper) words.emplace_back();
    if (name[i] != '_') words.back() += name[i];
  }
  return words;
}

/// Names of variables, constants and members of which one word differs, as far as a file has them;
/// and two names that are the arguments of one call.
void add_names(const std::string& code, std::vector<Place>* places) {
  std::map<std::string, Words> names;
  const char* const name = "\\b([a-z]\\w*)\\b(?!\\(|::)";
  for_each(code, name, [&](std::size_t, const std::smatch& match) {
    names[match.str()] = words_of(match.str());
  });
  const auto alike = [](const Words& a, const Words& b) {
    const bool constants = a[0] == "k" && b[0] == "k";
    if (a.size() != b.size() || a.size() < 2 || a.back() == "t") return false;
    if (constants != (a[0] == "k" || b[0] == "k")) return false;
    int differ = 0;
    for (std::size_t i = 0; i < a.size(); ++i) differ += a[i] != b[i] ? 1 : 0;
    return differ == 1;
  };
  for_each(code, name, [&](std::size_t at, const std::smatch& match) {
    Place place{at, match.str(), "name", {}};
    for (const auto& [other, words] : names) {
      if (alike(words, names[place.before])) place.afters.push_back(other);
    }
    if (!place.afters.empty()) places->push_back(std::move(place));
  });
  for_each(code, "\\(([a-z]\\w*), ([a-z]\\w*)\\)", [&](std::size_t at, const std::smatch& match) {
    places->push_back({at + 1,
                       match[1].str() + ", " + match[2].str(),
                       "name",
                       {match[2].str() + ", " + match[1].str()}});
  });
}

/// Whether a statement may begin at `at`: after another one, a block's bracket, or a condition.
bool begins_statement(const std::string& code, std::size_t at) {
  std::size_t before = code.find_last_not_of(" \n", at - 1);
  if (before == std::string::npos) return false;
  if (before > 3 && code.compare(before - 3, 4, "else") == 0) return true;
  if (code[before] != ')') return code[before] == ';' || code[before] == '{' || code[before] == '}';
  for (int depth = 0; before > 0; --before) {
    depth += code[before] == ')' ? 1 : code[before] == '(' ? -1 : 0;
    if (depth == 0) break;
  }
  static const std::regex kCondition("(if|if constexpr|for|while) $");
  const std::size_t from = before > 16 ? before - 16 : 0;
  return std::regex_search(code.substr(from, before - from), kCondition);
}

void add_statements(const std::string& code, std::vector<Place>* places) {
  // A call or an assignment; declarations have a space after their first word.
  const char* const head =
      "(\\+\\+|--)?[A-Za-z_](\\w|::|\\.|->|\\[[^\\]\\n]*\\]|<[\\w:]*>)*(\\(| [-+*/|&^<>]*= "
      "|\\+\\+|--)";
  static const std::regex kWait("wait|arrive|fence|sync|commit|barrier");
  std::size_t last_end = 0;
  for_each(code, head, [&](std::size_t at, const std::smatch& match) {
    if (at < last_end || at < 4 || is_word(code[at - 1]) || !begins_statement(code, at)) return;
    std::size_t end = at;
    while (end < code.size() && code[end] != ';' && code[end] != '}') {
      const bool opens = code[end] == '(' || code[end] == '[' || code[end] == '{';
      end = opens ? after_brackets(code, end) : end + 1;
    }
    static const std::regex kKeyword("^(if|for|while|switch|return|sizeof)\\b");
    if (end >= code.size() || code[end] != ';' || std::regex_search(match.str(), kKeyword)) return;
    last_end = end + 1;
    const std::string statement = code.substr(at, last_end - at);
    places->push_back({at,
                       statement,
                       std::regex_search(match.str(), kWait) ? "deleted wait, arrive or fence"
                                                             : "deleted statement",
                       {"static_cast<void>(0);"}});
  });
}

}  // namespace

std::vector<Place> places_of(const std::string& text) {
  const std::string code = code_of(text);
  std::vector<Place> places;
  add_operators(code, &places);
  add_constants(code, &places);
  add_names(code, &places);
  add_statements(code, &places);
  for (Place& place : places) place.before = text.substr(place.at, place.before.size());
  return places;
}

std::vector<Mutant> draw(const std::filesystem::path& kernels,
                         const std::vector<std::filesystem::path>& files, std::uint64_t seed,
                         std::size_t count) {
  std::map<std::filesystem::path, std::string> texts;
  std::vector<std::pair<std::filesystem::path, Place>> places;
  std::size_t most = 0;
  for (const auto& file : files) {
    texts[file] = read_text(kernels / file);
    for (Place& place : places_of(texts[file])) {
      most += place.afters.size();
      places.emplace_back(file, std::move(place));
    }
  }
  if (count > most) throw std::runtime_error("there are " + std::to_string(most) + " mutants");
  std::mt19937_64 random(seed);
  std::set<std::string> drawn;
  std::vector<Mutant> mutants;
  while (mutants.size() < count) {
    const auto& [file, place] = places[random() % places.size()];
    const std::string& after = place.afters[random() % place.afters.size()];
    if (!drawn.insert(file.string() + ":" + std::to_string(place.at) + place.before + after)
             .second) {
      continue;
    }
    const std::string& text = texts[file];
    std::size_t begin = text.rfind('\n', place.at) + 1;
    begin = text.find_first_not_of(' ', begin);
    const std::string line_text = text.substr(begin, text.find('\n', begin) - begin);
    const std::size_t end = place.at + place.before.size();
    const std::string becomes =
        text.substr(begin, place.at - begin) + after + text.substr(end, text.find('\n', end) - end);
    const auto offset = static_cast<std::ptrdiff_t>(place.at);
    const auto line = 1 + std::count(text.begin(), text.begin() + offset, '\n');
    mutants.push_back({"m" + std::to_string(mutants.size() + 1), file, place.at,
                       static_cast<int>(line), line_text, becomes, place.before, after,
                       place.kind});
  }
  return mutants;
}

}  // namespace fp8_sdpa::wrong
