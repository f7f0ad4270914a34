#include "benchmarks/report/document.hpp"

#include <algorithm>
#include <string_view>

#include "benchmarks/report/document_style.hpp"

namespace fp8_sdpa::bench {
namespace {

/// Text by its pieces between backticks: `text(piece)` for every other one, `code(piece)` for those
/// between.
template <class TextPiece, class CodePiece>
std::string inline_text(std::string_view words, const TextPiece& text, const CodePiece& code) {
  std::string out;
  bool is_code = false;
  for (std::size_t at = 0; at <= words.size();) {
    const std::size_t end = std::min(words.find('`', at), words.size());
    const std::string piece(words.substr(at, end - at));
    if (!piece.empty()) out += is_code ? code(piece) : text(piece);
    is_code = !is_code;
    at = end + 1;
  }
  return out;
}

// --- HTML ----------------------------------------------------------------------------------------

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string html_code(const std::string& text) { return "<code>" + html_escaped(text) + "</code>"; }

std::string html_inline(const std::string& text) {
  return inline_text(text, html_escaped, html_code);
}

struct HtmlWriter {
  std::string out;

  void operator()(const Heading& heading) {
    const std::string tag = "h" + std::to_string(heading.level);
    out += "<" + tag + ">" + html_inline(heading.text) + "</" + tag + ">\n";
  }
  void operator()(const Paragraph& paragraph) {
    out += "<p>" + html_inline(paragraph.text) + "</p>\n";
  }
  void operator()(const Notice& notice) {
    out += std::string("<p class=\"notice") + (notice.good ? "" : " bad") + "\"><strong>" +
           html_inline(notice.text) + "</strong></p>\n";
  }
  void operator()(const Bullets& bullets) {
    begin_fold(bullets.fold);
    out += "<ul>\n";
    for (const std::string& item : bullets.items) out += "<li>" + html_inline(item) + "</li>\n";
    out += "</ul>\n";
    end_fold(bullets.fold);
  }
  void operator()(const Table& table) {
    begin_fold(table.fold);
    out += "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>";
    for (const Column& column : table.columns) {
      out += "<th" + class_of(column, "") + ">" + html_escaped(column.title) + "</th>";
    }
    out += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
      out += "<tr>";
      for (std::size_t i = 0; i < row.size(); ++i) add_cell(table.columns[i], row[i]);
      out += "</tr>\n";
    }
    out += "</tbody></table></div>\n";
    end_fold(table.fold);
  }
  void operator()(const Figures& figures) {
    out += "<div class=\"figures\">\n";
    for (const Figure& figure : figures.figures) {
      out += "<figure><h3>" + html_inline(figure.title) + "</h3>\n" + figure.svg +
             "\n<figcaption>" + html_inline(figure.caption) + "</figcaption></figure>\n";
    }
    out += "</div>\n";
  }

 private:
  void begin_fold(const std::string& fold) {
    if (!fold.empty()) out += "<details><summary>" + html_inline(fold) + "</summary>\n";
  }
  void end_fold(const std::string& fold) {
    if (!fold.empty()) out += "</details>\n";
  }
  static std::string class_of(const Column& column, std::string_view text) {
    constexpr std::size_t kLong = 60;
    if (column.kind == Column::Kind::kNumber) return " class=\"number\"";
    return text.size() > kLong ? " class=\"long\"" : "";
  }
  void add_cell(const Column& column, const Cell& cell) {
    const bool code = column.kind == Column::Kind::kCode && !cell.text.empty();
    const std::string text = code ? html_code(cell.text) : html_escaped(cell.text);
    out += "<td" + class_of(column, cell.text) + ">" +
           (cell.strong ? "<strong>" + text + "</strong>" : text) + "</td>";
  }
};

// --- Markdown ------------------------------------------------------------------------------------

std::string markdown_escaped(std::string_view text) {
  constexpr std::string_view kSpecial = "\\`*_[]<>|#~$";
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
      continue;
    }
    if (kSpecial.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// As code where that can be: a backtick ends code, whatever stands before it.
std::string markdown_code(const std::string& text) {
  return text.find('`') == std::string::npos ? "`" + text + "`" : markdown_escaped(text);
}

std::string markdown_inline(const std::string& text) {
  return inline_text(text, markdown_escaped, markdown_code);
}

/// In a table's row even code may not hold a bare bar.
std::string markdown_cell(const Column& column, const Cell& cell) {
  const bool code = column.kind == Column::Kind::kCode && !cell.text.empty() &&
                    cell.text.find('`') == std::string::npos;
  std::string text;
  if (code) {
    for (const char c : cell.text) text += c == '|' ? std::string("\\|") : std::string(1, c);
    text = "`" + text + "`";
  } else {
    text = markdown_escaped(cell.text);
  }
  return cell.strong && !text.empty() ? "**" + text + "**" : text;
}

struct MarkdownWriter {
  std::string out;

  void operator()(const Heading& heading) {
    add(std::string(static_cast<std::size_t>(heading.level), '#') + " " +
        markdown_inline(heading.text));
  }
  void operator()(const Paragraph& paragraph) { add(markdown_inline(paragraph.text)); }
  void operator()(const Notice& notice) { add("> **" + markdown_inline(notice.text) + "**"); }
  void operator()(const Bullets& bullets) {
    std::string list;
    for (const std::string& item : bullets.items) {
      list += (list.empty() ? "- " : "\n- ") + markdown_inline(item);
    }
    add_folded(bullets.fold, list);
  }
  void operator()(const Table& table) {
    std::string text = "|";
    for (const Column& column : table.columns) {
      text += " " + markdown_escaped(column.title) + " |";
    }
    text += "\n|";
    for (const Column& column : table.columns) {
      text += column.kind == Column::Kind::kNumber ? "---:|" : "---|";
    }
    for (const auto& row : table.rows) {
      text += "\n|";
      for (std::size_t i = 0; i < row.size(); ++i) {
        text += " " + markdown_cell(table.columns[i], row[i]) + " |";
      }
    }
    add_folded(table.fold, text);
  }
  void operator()(const Figures& figures) {
    for (const Figure& figure : figures.figures) {
      add("**" + markdown_inline(figure.title) + "**");
      add("![" + markdown_escaped(figure.title) + "](" + figure.file + ")");
      add(markdown_inline(figure.caption));
    }
  }

 private:
  void add_folded(const std::string& fold, const std::string& block) {
    if (!fold.empty()) add("<details><summary>" + html_inline(fold) + "</summary>");
    add(block);
    if (!fold.empty()) add("</details>");
  }
  void add(const std::string& block) { out += (out.empty() ? "" : "\n") + block + "\n"; }
};

}  // namespace

std::string as_code(const std::string& text) {
  std::string out = text;
  std::replace(out.begin(), out.end(), '`', '\'');
  return "`" + out + "`";
}

std::string to_html(const Document& document) {
  HtmlWriter body;
  for (const Block& block : document.blocks) std::visit(body, block);
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         html_escaped(document.title) + "</title>\n<style>" + kPageStyle +
         "</style>\n</head>\n<body>\n<main>\n" + body.out + "</main>\n</body>\n</html>\n";
}

std::string to_markdown(const Document& document) {
  MarkdownWriter body;
  for (const Block& block : document.blocks) std::visit(body, block);
  return body.out;
}

}  // namespace fp8_sdpa::bench
