// What the tests of a report's page share: reading its tables back, and running the tool.
#pragma once

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/tool_fixture.hpp"

namespace fp8_sdpa::bench {

using Rows = std::vector<std::vector<std::string>>;

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// What a browser shows of a piece of HTML without line breaks.
inline std::string shown_html(const std::string& html) {
  std::string text = std::regex_replace(html, std::regex("<[^>]*>"), "");
  for (const auto& [entity, character] : std::vector<std::pair<std::string, std::string>>{
           {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}}) {
    text = replaced(text, entity, character);
  }
  return text;
}

/// Every row of every table of a page, head rows too.
inline Rows rows_of_html(const std::string& html) {
  Rows rows;
  for (std::size_t at = 0; (at = html.find("<tr>", at)) != std::string::npos;) {
    const std::size_t end = html.find("</tr>", at);
    const std::string row = html.substr(at, end - at);
    rows.emplace_back();
    const std::regex cell("<t[dh][^>]*>(.*?)</t[dh]>");
    for (std::sregex_iterator it(row.begin(), row.end(), cell), none; it != none; ++it) {
      rows.back().push_back(shown_html((*it)[1]));
    }
    at = end;
  }
  return rows;
}

/// What a reader of GitHub's Markdown sees of a table's cell.
inline std::string shown_markdown(std::string cell) {
  const auto strip = [&](const std::string& mark) {
    const std::size_t n = mark.size();
    if (cell.size() < 2 * n || cell.compare(0, n, mark) != 0 ||
        cell.compare(cell.size() - n, n, mark) != 0) {
      return false;
    }
    cell = cell.substr(n, cell.size() - 2 * n);
    return true;
  };
  strip("**");
  if (strip("`")) return replaced(cell, "\\|", "|");
  std::string out;
  for (std::size_t i = 0; i < cell.size(); ++i) {
    if (cell[i] == '\\' && i + 1 < cell.size()) ++i;
    out += cell[i];
  }
  return replaced(out, "&amp;", "&");
}

inline Rows rows_of_markdown(const std::string& markdown) {
  Rows rows;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|' || line.rfind("|---", 0) == 0) continue;
    rows.emplace_back();
    std::string cell;
    for (std::size_t i = 1; i < line.size(); ++i) {
      if (line[i] == '|' && line[i - 1] != '\\') {
        rows.back().push_back(shown_markdown(cell.substr(1, cell.size() - 2)));
        cell.clear();
      } else {
        cell += line[i];
      }
    }
  }
  return rows;
}

/// The first row that begins with these cells; empty where there is none.
inline std::vector<std::string> row_with(const Rows& rows, const std::vector<std::string>& head) {
  for (const auto& row : rows) {
    if (row.size() >= head.size() && std::equal(head.begin(), head.end(), row.begin())) return row;
  }
  return {};
}

class ReportPage : public ToolTest {
 protected:
  /// An interpreter that draws a square for every figure.
  std::string fake_python() const {
    return script("python", R"sh(
for file in $(sed -n 's/.*"file": "\([^"]*\)".*/\1/p' "$2"); do
  echo '<svg class="drawn"><rect/></svg>' > "$3/$file"
done)sh");
  }
  std::string script(const std::string& name, const std::string& body) const {
    write(at(name), "#!/bin/sh\n" + body + "\n");
    std::filesystem::permissions(at(name), std::filesystem::perms::owner_all);
    return at(name);
  }
  Ran report(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--out", at("page"), "--kill-matrix", at("kill.json")});
    if (std::find(arguments.begin(), arguments.end(), "--python") == arguments.end()) {
      arguments.insert(arguments.end(), {"--python", fake_python()});
    }
    return run(FP8_SDPA_REPORT_BINARY, arguments);
  }
  std::string html() const { return read(at("page/report.html")); }
  std::string markdown() const { return read(at("page/report.md")); }
  /// Changes a file of JSON in place.
  template <class Change>
  void edit(const std::string& name, const Change& change) const {
    nlohmann::json document = read_json_file(at(name));
    change(document);
    write(at(name), document.dump());
  }
  std::vector<MadeSeries> with_peers() const {
    return {{"stage_c", "mission", 40}, {"fast", "mission", 10},
            {"peer/a", "mission", 30},  {"peer/b", "mission", 15},
            {"stage_c", "small", 8},    {"fast", "small", 6},
            {"peer/a", "small", 6},     {"stage_c", "mission", 36, Method::kGraphWarm}};
  }
};

}  // namespace fp8_sdpa::bench
