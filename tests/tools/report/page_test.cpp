// fp8_sdpa_report: the page and its Markdown twin hold what the files say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <regex>
#include <string>
#include <vector>

#include "benchmarks/report/document.hpp"
#include "tests/tools/report/report_fixture.hpp"

namespace fp8_sdpa::bench {
namespace {

using nlohmann::json;

TEST_F(ReportPage, HoldsTheVerdictAndEveryTime) {
  make_run("run", with_peers());
  const Ran ran = report({at("run")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  const std::string verdict =
      "GREEN: 5 of 5 cases passed every gate. Against peers: faster (the fastest peer's time over "
      "ours: average 1.25x, best 1.50x, worst 1.00x). Next: profile what binds it on the way to "
      "2x.";
  EXPECT_NE(shown_html(html()).find(verdict), std::string::npos) << html();
  EXPECT_NE(markdown().find("> **" + verdict + "**"), std::string::npos) << markdown();

  const Rows rows = rows_of_html(html());
  const auto mission = row_with(rows, {"mission"});
  ASSERT_GE(mission.size(), 7U);
  EXPECT_EQ(
      std::vector(mission.begin(), mission.begin() + 7),
      (std::vector<std::string>{"mission", "10.00", "1.50x", "30.00", "3.00x", "15.00", "1.50x"}));
  EXPECT_EQ(row_with(rows, {"small", "6.00"}).at(5), "-") << "b was not measured on small";
  EXPECT_EQ(row_with(rows, {"peer/a"}),
            (std::vector<std::string>{"peer/a", "2.00x", "3.00x", "1.00x", ">= 2x",
                                      "keep it: add it to the elite and to the run log"}));
  // Every series of the file, by its method, in the tables of all kernels.
  const json file = read_json_file(at("run/perf_baseline.json"));
  for (const json& result : file.at("results")) {
    char p50[32];
    std::snprintf(p50, sizeof p50, "%.2f", result.at("p50_us").get<double>());
    const bool shown = std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
      return row[0] == result.at("variant") && std::find(row.begin(), row.end(), p50) != row.end();
    });
    EXPECT_TRUE(shown) << result.at("variant") << " " << p50;
  }
}

TEST_F(ReportPage, SaysOnceWhereNoPeerWasMeasured) {
  make_run("run", {{"stage_c", "mission", 40}, {"fast", "mission", 10}});
  const Ran ran = report({at("run")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(shown_html(html()).find("Against peers: not measured. Next: measure both in one run"),
            std::string::npos);
  const std::string line = "Ratios to peers: no peer was measured in `" + at("run") + "`.";
  const std::size_t found = markdown().find(line);
  ASSERT_NE(found, std::string::npos) << markdown();
  EXPECT_EQ(markdown().find("no peer was measured", found + line.size()), std::string::npos);
}

TEST_F(ReportPage, MarksAPeerThatFailsItsGatesAndDoesNotCountIt) {
  make_run("run", {{"fast", "mission", 10},
                   {"peer/a", "mission", 5, Method::kEventsWarm, /*pass=*/false},
                   {"peer/b", "mission", 20}});
  const Ran ran = report({at("run")});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const Rows rows = rows_of_html(html());
  const auto mission = row_with(rows, {"mission", "10.00"});
  ASSERT_GE(mission.size(), 5U);
  EXPECT_EQ(mission[2], "2.00x") << "a is fastest, but wrong";
  EXPECT_EQ(mission[3], "5.00 (gates failed)");
  EXPECT_NE(shown_html(html()).find("peer/a on mission failed: "), std::string::npos);
}

TEST_F(ReportPage, LeavesOutTimesOfWhatIsNotGreenAndFails) {
  make_run("run",
           {{"stage_c", "mission", 40}, {"fast", "mission", 10, Method::kEventsWarm, false}});
  const Ran ran = report({at("run")});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.err, "");
  EXPECT_NE(shown_html(html()).find("RED: 1 of 2 cases failed a gate."), std::string::npos);
  EXPECT_NE(html().find("class=\"notice bad\""), std::string::npos);
  const Rows rows = rows_of_html(html());
  EXPECT_EQ(row_with(rows, {"mission"}).at(1), "40.00");
  EXPECT_NE(markdown().find("Times of what did not pass its gates"), std::string::npos);
  EXPECT_EQ(markdown().find("10.00"), std::string::npos);
}

TEST_F(ReportPage, HtmlAndMarkdownAgreeWhateverTheFolder) {
  make_run("run & <b>_x_", {{"fast", "mission", 4}});
  const Ran ran = report({at("run & <b>_x_")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(html().find("<b>"), std::string::npos);
  EXPECT_EQ(rows_of_html(html()), rows_of_markdown(markdown()));
}

TEST(Document, HtmlAndMarkdownAgreeWhateverTheText) {
  const char* odd = "<script>alert('1')</script>|`a`&_b_*c*\\";
  const Table table{
      {{odd, Column::Kind::kText}, {"b", Column::Kind::kCode}},
      {{odd, odd}, {"a|b", "a|b"}, {"`|`", "`|`"}, {Cell(odd, /*is_strong=*/true), ""}},
      ""};
  const Document page{odd, {Heading{1, odd}, Paragraph{odd}, table}};
  EXPECT_EQ(to_html(page).find("<script"), std::string::npos);
  const Rows rows = {{odd, "b"}, {odd, odd}, {"a|b", "a|b"}, {"`|`", "`|`"}, {odd, ""}};
  EXPECT_EQ(rows_of_html(to_html(page)), rows);
  EXPECT_EQ(rows_of_markdown(to_markdown(page)), rows);
}

// A shade at the side where a table goes on: it stays with the frame, and what covers it scrolls
// along with the table's end.
TEST(Document, ATableThatIsCutSaysSo) {
  const std::string page = to_html({"", {Table{{{"a", Column::Kind::kText}}, {{"b"}}, ""}}});
  ASSERT_NE(page.find("<div class=\"scroll\" tabindex=\"0\"><table>"), std::string::npos)
      << "keys scroll what has the focus";
  std::smatch rule;
  ASSERT_TRUE(std::regex_search(page, rule, std::regex("\n\\.scroll \\{([^}]*)\\}")));
  EXPECT_TRUE(std::regex_search(
      rule[1].str(), std::regex("background:\\s*linear-gradient\\([^;]*\\) [^;]* local,[^;]*"
                                "linear-gradient\\([^;]*\\) [^;]* scroll;")))
      << rule[1];
}

TEST_F(ReportPage, ShowsTheLargestErrorOverTheSeeds) {
  make_run("run", {{"fast", "mission", 10}, {"fast", "mission", 10, Method::kGraphWarm}});
  edit("run/correctness_summary.json", [](json& summary) {
    summary["results"][0]["max_abs_err"] = 0.0125;
    summary["results"][1]["max_abs_err"] = 0.005;
    summary["results"][1]["kernel_rel_l2"] = 2.5e-4;
    summary["results"][1]["rel_l2"] = nullptr;
  });
  ASSERT_EQ(report({at("run")}).exit_code, 0);
  EXPECT_EQ(row_with(rows_of_html(html()), {"fast", "mission"}),
            (std::vector<std::string>{"fast", "mission", "0.0125", "0.0000", "not finite",
                                      "2.50e-04", "2 of 2"}));
}

TEST_F(ReportPage, FetchesNothing) {
  make_run("run", with_peers());
  ASSERT_EQ(report({at("run")}).exit_code, 0);
  for (const char* pattern :
       {"<script", "<link", "<iframe", "<img", "src=", "@import", "http:", "https:", "url("}) {
    EXPECT_EQ(html().find(pattern), std::string::npos) << pattern;
  }
  EXPECT_NE(html().find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(html().find("name=\"viewport\""), std::string::npos);
}

}  // namespace
}  // namespace fp8_sdpa::bench
