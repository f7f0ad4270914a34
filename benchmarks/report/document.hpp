// A document of headings, tables and figures, written as HTML and as Markdown: one source, so that
// both say the same.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fp8_sdpa::bench {

// Text may hold `code` between backticks; text of others goes through as_code() first. Cells are
// plain.

struct Heading {
  int level = 2;  ///< 1 is the document's title
  std::string text;
};

struct Paragraph {
  std::string text;
};

/// What a reader in a hurry reads.
struct Notice {
  bool good = true;
  std::string text;
};

struct Bullets {
  std::vector<std::string> items;
  std::string fold = {};  ///< where not empty: a line that they hide behind
};

struct Cell {
  Cell(std::string words) : text(std::move(words)) {}  // NOLINT(google-explicit-constructor)
  Cell(const char* words) : text(words) {}             // NOLINT(google-explicit-constructor)
  Cell(std::string words, bool is_strong) : text(std::move(words)), strong(is_strong) {}

  std::string text;
  bool strong = false;
};

struct Column {
  enum class Kind { kText, kCode, kNumber };
  std::string title;
  Kind kind = Kind::kText;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows = {};
  std::string fold = {};  ///< where not empty: a line that the table hides behind
};

struct Figure {
  std::string file;      ///< beside the document
  std::string title;     ///< what a reader who cannot see it is told
  std::string caption;   ///< how to read it
  std::string svg = {};  ///< the file's text
};
struct Figures {
  std::vector<Figure> figures;
};

using Block = std::variant<Heading, Paragraph, Notice, Bullets, Table, Figures>;

struct Document {
  std::string title;  ///< of the browser's window
  std::vector<Block> blocks;
};

/// `text` as code, whatever it holds.
std::string as_code(const std::string& text);

/// One page that fetches nothing: style and figures are in it. Follows the reader's choice of light
/// or dark; tables wider than the screen scroll by themselves, and are shaded where they are cut.
std::string to_html(const Document& document);

/// GitHub's Markdown; figures are linked by their file.
std::string to_markdown(const Document& document);

}  // namespace fp8_sdpa::bench
