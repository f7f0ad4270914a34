#!/usr/bin/env bash
# Every command of a Markdown file: commands_test.sh SOURCE_DIR BUILD_DIR WORK_DIR. Each stands in
# commands.txt, which runs it in a copy of the tree or says what it needs; its options are known.
set -uo pipefail
unset SDPA_NO_INSTALL SDPA_REQUIRE_GPU SDPA_CONFIG
source=$1 build=$2 work=$3
list=$source/tests/build/commands.txt
failures=0
fail() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}

# Of code spans, which may go over a line's end, and of the lines of code blocks; a name alone, as
# `fp8_sdpa_run`, is no command, but `./sdpa run` is.
documented() {
  local file words='(\./sdpa [a-z]|(cmake|ctest|git apply|random_problems|compute-sanitizer|beside_ours|fp8_sdpa_[a-z]+|[a-z_/]+\.py|build/[a-z/_]+) [^ ])'
  find "$source" -name build -prune -o -name '*.md' -print | while read -r file; do
    tr '\n' ' ' <"$file" | grep -oP "(?<!\`)\`${words}[^\`]*\`" | tr -d '`'
    awk '/^ *```/ { code = !code; next } code' "$file" | sed -E 's/^ +//; s/ +# .*//' | grep -E "^$words"
  done | sed 's/\\|/|/g; s/  */ /g; s/ $//' | sort -u
}

# The options of a launcher's command that its help does not have.
unknown_options() {
  local verb=$1 option
  shift
  for option in "$@"; do
    [[ $option == --* && $option != --benchmark_* ]] || continue
    awk -v verb="$verb" '/^== / { ours = $2 == verb } ours' "$source/benchmarks/command/help.txt" |
      grep -qE "^ +(-h,)?${option%%=*}( |\$)" || echo "$option"
  done
}

run_in_copy() {
  case $1 in
    ./sdpa) CUDA_VISIBLE_DEVICES='' SDPA_PRESET=release "$@" --no-build ;;
    *.py) ! command -v python3 >/dev/null || python3 "$@" ;;
    *) "$@" ;;
  esac
}

rm -rf "$work"
mkdir -p "$work/build"
cp "$source/sdpa" "$work/"
cp -r "$source/results" "$work/"
ln -s "$build" "$work/build/release"
for name in benchmarks cmake kernels reference config_forward.json; do ln -s "$source/$name" "$work/"; done

declare -A seen=()
while IFS= read -r command; do
  found=""
  while read -r mark pattern; do
    [[ -n $mark && $mark != '#' ]] || continue
    arguments=${pattern#* => }
    pattern=${pattern%% => *}
    # shellcheck disable=SC2053  # a glob
    [[ $command == "$pattern" || $command == $pattern ]] || continue
    found=$mark
    seen[$pattern]=1
    if [[ $mark == runs ]]; then
      # shellcheck disable=SC2086  # words, with globs in them
      said=$(cd "$work" && run_in_copy $arguments 2>&1) || fail "$command: $said"
    fi
    break
  done <"$list"
  [[ -n $found ]] || fail "$command: not in tests/build/commands.txt"
  read -r -a words <<<"$command"
  [[ ${words[0]} == ./sdpa ]] || continue
  grep -qx "== ${words[1]}" "$source/benchmarks/command/help.txt" || [[ ${words[1]} == help ]] ||
    fail "$command: there is no such command"
  unknown=$(unknown_options "${words[1]}" "${words[@]:2}")
  [[ -z $unknown ]] || fail "$command: no such option: $unknown"
done < <(documented)

while read -r mark pattern; do
  [[ -z $mark || $mark == '#' || -n ${seen[${pattern%% => *}]:-} ]] || fail "$pattern: in no Markdown file"
done <"$list"
echo "${#seen[@]} commands"
[[ $failures -eq 0 ]]
