#include "tests/wrong/random/score.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/wrong/faults.hpp"

namespace fp8_sdpa::wrong {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Fate fate) {
  switch (fate) {
    case Fate::kNotCompiled: return "not compiled";
    case Fate::kSame: return "same object";
    case Fate::kEquivalent: return "equivalent";
    case Fate::kKilled: return "killed";
    case Fate::kLives: return "lives";
  }
  return "unknown";
}

std::string in_table(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("|\n", at)) != std::string::npos; at += 2) {
    text.replace(at, 1, text[at] == '|' ? "\\|" : "  ");
  }
  return text;
}

std::string table_of(const std::vector<Judged>& all, Fate fate, const std::string& last_column) {
  std::string table = "| where | edit | " + last_column + " |\n|---|---|---|\n";
  for (const Judged& judged : all) {
    if (judged.fate != fate) continue;
    const Mutant& m = judged.mutant;
    const std::string after = m.after.empty() ? "nothing" : "`" + in_table(m.after) + "`";
    table += "| `" + m.file.string() + ":" + std::to_string(m.line) + "` `" +
             in_table(m.line_text) + "` | `" + in_table(m.before) + "` -> " + after + " | " +
             in_table(fate == Fate::kLives ? m.kind : judged.detail) + " |\n";
  }
  return table;
}

}  // namespace

std::string reason_of(const Mutant& mutant, const std::filesystem::path& equivalents) {
  const Json root = Json::parse(read_text(equivalents));
  for (const auto& entry : root.at("equivalent")) {
    if (entry.at("file") == mutant.file.string() && entry.at("line") == mutant.line_text &&
        entry.at("becomes") == mutant.becomes) {
      return entry.at("reason");
    }
  }
  return "";
}

double take_over(const std::filesystem::path& score, std::vector<Judged>& all) {
  const Json root = Json::parse(read_text(score));
  for (Judged& judged : all) {
    const Mutant& m = judged.mutant;
    const auto& mutants = root.at("mutants");
    const auto found = std::find_if(mutants.begin(), mutants.end(), [&](const Json& earlier) {
      return earlier.at("name") == m.name && earlier.at("file") == m.file.string() &&
             earlier.at("line_text") == m.line_text && earlier.at("before") == m.before &&
             earlier.at("after") == m.after;
    });
    if (found == mutants.end()) throw std::runtime_error(score.string() + " is of another draw");
    for (const Fate fate : {Fate::kNotCompiled, Fate::kSame, Fate::kEquivalent, Fate::kKilled}) {
      if (found->at("fate") == name_of(fate)) judged.fate = fate;
    }
    judged.by = found->at("by");
    judged.detail = found->at("detail");
  }
  return root.at("seconds");
}

std::string write_score(const Experiment& experiment, const std::vector<Judged>& all,
                        const std::filesystem::path& folder) {
  std::map<Fate, int> count;
  std::map<std::string, int> killers;
  Json mutants = Json::array();
  for (const Judged& judged : all) {
    ++count[judged.fate];
    if (judged.fate == Fate::kKilled) ++killers[judged.by];
    const Mutant& m = judged.mutant;
    mutants.push_back({{"name", m.name},
                       {"file", m.file.string()},
                       {"line", m.line},
                       {"line_text", m.line_text},
                       {"kind", m.kind},
                       {"before", m.before},
                       {"after", m.after},
                       {"becomes", m.becomes},
                       {"fate", name_of(judged.fate)},
                       {"by", judged.by},
                       {"detail", judged.detail.substr(0, 200)}});
  }
  const int counted = count[Fate::kKilled] + count[Fate::kLives];
  const double score = counted > 0 ? static_cast<double>(count[Fate::kKilled]) / counted : 0.0;
  char percent[16];
  std::snprintf(percent, sizeof percent, "%.1f %%", 100.0 * score);
  const std::string line = std::to_string(count[Fate::kKilled]) + " of " + std::to_string(counted) +
                           " random mutants killed: " + percent;
  std::filesystem::create_directories(folder);
  std::ofstream document(folder / "mutation_score.json");
  document << "{\"schema_version\": 1, \"seed\": " << experiment.seed
           << ", \"count\": " << all.size() << ", \"files\": " << Json(experiment.files)
           << ",\n\"commit\": " << Json(experiment.commit)
           << ", \"command\": " << Json(experiment.command)
           << ", \"seconds\": " << static_cast<int>(experiment.seconds)
           << ",\n\"not_compiled\": " << count[Fate::kNotCompiled]
           << ", \"same_object\": " << count[Fate::kSame]
           << ", \"equivalent\": " << count[Fate::kEquivalent]
           << ", \"killed\": " << count[Fate::kKilled] << ", \"lives\": " << count[Fate::kLives]
           << ", \"score\": " << score << ",\n\"killed_by\": " << Json(killers)
           << ", \"mutants\": [\n";
  for (std::size_t i = 0; i < mutants.size(); ++i) {  // a line per mutant, for people who compare
    document << mutants[i].dump() << (i + 1 < mutants.size() ? ",\n" : "\n");
  }
  document << "]}\n";
  std::ofstream text(folder / "mutation_score.md");
  text << "# Mutation score\n\n**" << line << "** without a GPU (seed " << experiment.seed << ", "
       << all.size() << " drawn from " << experiment.files << ", commit " << experiment.commit
       << ").\nNot counted: " << count[Fate::kNotCompiled] << " do not compile, "
       << count[Fate::kSame] << " compile to the same object, " << count[Fate::kEquivalent]
       << " are known to be equivalent.\n\n```\n"
       << experiment.command << "\n```\n\nKilled by:";
  for (const auto& [by, kills] : killers) text << " " << by << " " << kills << ";";
  text << "\n\n## Lives\n\n"
       << table_of(all, Fate::kLives, "kind") << "\n## Equivalent\n\n"
       << table_of(all, Fate::kEquivalent, "why");
  return line;
}

}  // namespace fp8_sdpa::wrong
