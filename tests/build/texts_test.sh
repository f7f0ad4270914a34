#!/usr/bin/env bash
# The sizes that keep this repository readable: Markdown of at most 120 columns (but for tables, code and
# links, and pages in results/ that tools make), a README of at most 120 lines, code files of at most
# 400 lines, source folders of at most 25 files.
#
#   texts_test.sh SOURCE_DIR
set -euo pipefail
cd "$1"

if [[ -e .git ]] && command -v git >/dev/null; then
  files=$(git ls-files --cached --others --exclude-standard)
else
  files=$(find . \( -path ./build -o -path ./.git \) -prune -o -type f -printf '%P\n')
fi
# Of a file that is deleted, git knows until that is committed.
files=$(while IFS= read -r file; do if [[ -f $file ]]; then echo "$file"; fi; done <<<"$files")

found=$(
  grep '\.md$' <<<"$files" | xargs -d '\n' awk '
    FNR == 1 { code = 0; made = FILENAME ~ /^results\// && FILENAME !~ /README/ }
    /^ *```/ { code = !code }
    length > 120 && !made && !code && !/^ *\|/ && !/\]\(|https?:|<img/ {
      print FILENAME ":" FNR ": " length " columns; Markdown is wrapped at 120" }
    FNR == 121 && FILENAME == "README.md" { print FILENAME ": more than 120 lines" }'
  grep -E '\.(cpp|hpp|cu|cuh|def|py|sh|cmake)$|(^|/)CMakeLists\.txt$|^sdpa$' <<<"$files" |
    xargs -d '\n' awk 'FNR == 401 { print FILENAME ": more than 400 lines" }'
  grep -E '^(benchmarks|cmake|kernels|python|reference|tests)/' <<<"$files" | sed 's#/[^/]*$##' |
    sort | uniq -c | awk '$1 > 25 && $2 != "kernels/gpu" { print $2 ": " $1 " files, more than 25" }'
)
if [[ -n $found ]]; then
  echo "$found"
  exit 1
fi
