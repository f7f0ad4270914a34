#!/usr/bin/env bash
# The launcher's bad input and its set-up: launcher_test.sh SDPA WORK_DIR.
set -uo pipefail
# What the caller sets for its own run of the launcher is not what is tested here.
unset SDPA_PRESET SDPA_NO_INSTALL SDPA_REQUIRE_GPU SDPA_CONFIG
work=$2
rm -rf "$work"
mkdir -p "$work/tree" "$work/bin"
cp "$1" "$work/tree/sdpa"
mkdir -p "$work/tree/benchmarks/command"
cp "$(dirname "$1")/benchmarks/command/"{environment.sh,torch.sh,measure.sh,completion.sh,help.txt} "$work/tree/benchmarks/command/"
cp "$(dirname "$1")/CMakeLists.txt" "$work/tree/"
sdpa=$work/tree/sdpa
failures=0

# expect STATUS TEXT COMMAND...: the exit status, and a line that holds the text.
expect() {
  local status=$1 text=$2 said got
  shift 2
  said=$("$@" 2>&1)
  got=$?
  if [[ $got -ne $status || $said != *"$text"* ]]; then
    printf 'FAILED: %s\n  exit status %s, want %s; said:\n%s\n  want: %s\n' "$*" "$got" "$status" \
      "$said" "$text"
    failures=$((failures + 1))
  fi
}

expect 2 "unknown command 'frobnicate'" "$sdpa" frobnicate
expect 2 "test: got 'small', expected --only PATTERN, --torch or nothing" "$sdpa" test small
expect 2 "wheel: got '--into', expected --out DIR or nothing" "$sdpa" wheel --into x
expect 2 "test --only needs one pattern" "$sdpa" test --only
expect 2 "fp8_sdpa_run is not there" "$sdpa" run --no-build
expect 0 "usage: ./sdpa COMMAND" "$sdpa" help
expect 0 "usage: ./sdpa COMMAND" "$sdpa"
for verb in run test; do
  expect 2 'SDPA_REQUIRE_GPU="yes": expected 0 or 1' env SDPA_REQUIRE_GPU=yes "$sdpa" "$verb"
done
expect 2 'SDPA_NO_INSTALL="true": expected 0 or 1' env SDPA_NO_INSTALL=true "$sdpa" run
cd / && expect 2 "unknown command 'x'" "$sdpa" x

# Help neither builds nor installs: with nothing on PATH but what prints it.
for tool in awk bash dirname nproc readlink; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done
for verb in run test wheel mutate bench validate compare elite profile timeline report peers serving sweep measure ceilings; do
  expect 0 "Usage: ./sdpa $verb" env PATH="$work/bin" "$sdpa" "$verb" --help
  expect 0 "Usage: ./sdpa $verb" env PATH="$work/bin" "$sdpa" "$verb" x --no-build -h
done
expect 0 "usage: ./sdpa COMMAND" env PATH="$work/bin:$PATH" "$sdpa" --help
expect 0 "fp8-sdpa $(sed -n 's/^ *VERSION \([0-9.]*\)$/\1/p' "$work/tree/CMakeLists.txt"), commit " "$sdpa" --version

# Words for a shell.
completed() { bash -c 'source <("$0" completion) && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && _sdpa && echo "${COMPREPLY[*]}"' "$sdpa" "$@"; }
expect 0 "compare completion" completed ./sdpa comp
expect 0 "--qkv --qkv-layout --qkv-names --qkv-scale --qkv-mask" completed ./sdpa run small --qk
expect 0 "--host_executor" completed ./sdpa bench --ho

# --no-build runs the binary as it is, with the arguments as they are but for itself.
tools=$work/tree/build/release/benchmarks
mkdir -p "$tools"
printf '#!/bin/sh\nprintf "<%%s>" "$@"; exit 7\n' >"$tools/fp8_sdpa_run"
chmod +x "$tools/fp8_sdpa_run"
expect 7 "<--shapes><two words><--iters><5>" \
  "$sdpa" run --shapes "two words" --no-build --iters 5

# measure, with tools that say what they are given and leave what they would.
fake() { # NAME FOLDER_BELOW_BENCHMARKS BODY
  mkdir -p "$tools/$2"
  printf '#!/bin/sh\n%s\n' "$3" >"$tools/$2/$1"
  chmod +x "$tools/$2/$1"
}
# Leaves a file of the names that the real one has in its folder of results.
writer='while [ $# -gt 0 ]; do if [ "$1" = --out ]; then out=$2; fi; shift; done; mkdir -p "$out"'
measured='echo "{\"name\": \"forward/cudnn_fp8/long\"}" >"$out/benchmark.json"'
expect 2 "got '--fast', expected --out DIR" "$sdpa" measure --fast
expect 2 "measure: --out needs a value" "$sdpa" measure --out
expect 2 "fp8_sdpa_ceilings is not there" "$sdpa" measure --no-build --out "$work/measured"
fake fp8_sdpa_ceilings ceilings "exit 0"
fake fp8_sdpa_peers peers "exit 0"
fake fp8_sdpa_compare . 'echo "compare $*" >>"$LOG"; exit 1'
fake fp8_sdpa_report . 'echo "report $*" >>"$LOG"'
export LOG=$work/log
new_measure() { rm -rf "$work/measured" && "$sdpa" measure --no-build --out "$work/measured"; }
expect 0 "nothing was measured" new_measure
# One part fails: the others go on, and the worst exit code is the launcher's.
fake fp8_sdpa_ceilings ceilings "exit 2"
fake fp8_sdpa_peers peers "$writer; $measured; echo {} >\"\$out/perf_baseline.json\""
expect 2 "ceilings: exit code 2" new_measure
expect 2 "measured has the ladder of another run" "$sdpa" measure --no-build --out "$work/measured"
logged=$(cat "$LOG")
for text in "--variant-new auto --variant-old cudnn_fp8 --out $work/measured/COMPARE.md" \
  "compare --aa $work/measured/ladder" "report $work/measured/ladder $work/measured/hopper "; do
  if [[ $logged != *"$text"* ]]; then
    printf 'FAILED: measure called no "%s"; it called\n%s\n' "$text" "$logged"
    failures=$((failures + 1))
  fi
done
# A shape slower than the peer's is no failure; a false alarm too many is.
fake fp8_sdpa_ceilings ceilings "exit 0"
expect 1 "compare: exit code 1" new_measure
fake fp8_sdpa_compare . 'case $1 in --aa) exit 0 ;; *) exit 1 ;; esac'
expect 0 "written: $work/measured/COMPARE.md" new_measure
# One that crashes counts as failed.
fake fp8_sdpa_report . 'kill -SEGV $$'
expect 1 "report: exit code 139" new_measure

# A machine without CMake and without headers.
for tool in mkdir id paste cat sed grep tail env; do
  ln -s "$(command -v "$tool")" "$work/bin/$tool"
done
printf '#!/bin/sh\nexit 1\n' >"$work/bin/g++"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/sudo"
chmod +x "$work/bin/g++" "$work/bin/sudo"
expect 2 "cmake ninja-build libgtest-dev libbenchmark-dev" env PATH="$work/bin" "$sdpa" run
expect 2 "no apt-get" env PATH="$work/bin" "$sdpa" run
printf '#!/bin/sh\necho "no network"; exit 100\n' >"$work/bin/apt-get"
chmod +x "$work/bin/apt-get"
expect 2 "SDPA_NO_INSTALL=1, so please run: " env PATH="$work/bin" SDPA_NO_INSTALL=1 "$sdpa" run
expect 2 "apt-get install -y cmake ninja-build" env PATH="$work/bin" SDPA_NO_INSTALL=1 "$sdpa" run
# Whoever runs this: root is refused by this apt-get, others by this sudo.
expect 2 "please run: " env PATH="$work/bin" "$sdpa" run

# A log that cannot be written is no reason to skip what it is for: root may write to any file, and
# nobody to a folder.
rm -f "$work/tree/build/logs/install.log"
mkdir "$work/tree/build/logs/install.log"
printf '#!/bin/sh\nexit 0\n' >"$work/bin/sudo"
cp "$work/bin/sudo" "$work/bin/apt-get"
expect 1 "build/logs/install.log cannot be written" env PATH="$work/bin" "$sdpa" run

# Boost's headers without the one library of it that is linked.
printf '#!/bin/sh\ncase "$*" in *-lboost_context*) exit 1 ;; esac\n' >"$work/bin/g++"
expect 2 "missing: cmake ninja-build libboost-context-dev. " \
  env PATH="$work/bin" SDPA_NO_INSTALL=1 "$sdpa" run

# A build that fails, or whose log cannot be written, ends the command: the binary of an earlier one
# is there, and is not asked.
mkdir -p "$work/fake"
printf '#!/bin/sh\nexit 0\n' | tee "$work/fake/g++" >"$work/fake/ninja"
cat >"$work/fake/cmake" <<'FAKE'
#!/bin/sh
case "$*" in
  --version) echo "cmake version 3.25.1" ;;
  *--build*) echo "begin $(date +%s.%N)" >>"$LOG" && sleep "${BUILD_SECONDS:-0}" && echo end >>"$LOG" && exit "${BUILD_STATUS:-0}" ;;
esac
FAKE
chmod +x "$work/fake/"*
printf '#!/bin/sh\necho "sources: $SDPA_SOURCES"\n' >"$tools/fp8_sdpa_run"
fake fp8_sdpa_validate . "exit 0"
export PATH="$work/fake:$PATH"
for table in stage_c/variants.def sm90/tile_shapes.def dispatch/variants.cpp; do
  install -D "$(dirname "$1")/kernels/$table" "$work/tree/kernels/$table"
done
expect 2 "test --only: no kernel's name holds 'sm70'" "$sdpa" test --only sm70
expect 2 "no kernel's name holds 'sm90*d32'" "$sdpa" test --only 'sm90*d32'
expect 2 "test --only: got 'sm90.', expected letters" "$sdpa" test --only sm90.
expect 1 "the build failed" env BUILD_STATUS=1 "$sdpa" test --only 'stage_c*swizzle'
expect 0 "sources: $work/tree" "$sdpa" run
expect 1 "the build failed" env BUILD_STATUS=1 "$sdpa" run
rm -f "$work/tree/build/logs/build_release.log"
mkdir "$work/tree/build/logs/build_release.log"
for arguments in run "run --iters 0" test measure; do
  # shellcheck disable=SC2086  # a list of words
  expect 1 "build/logs/build_release.log cannot be written" env SDPA_NO_INSTALL=1 "$sdpa" $arguments
done
rmdir "$work/tree/build/logs/build_release.log"

# A tree that was moved, with its build folder.
mkdir -p "$work/tree/build/release"
echo "CMAKE_HOME_DIRECTORY:INTERNAL=/old/place" >"$work/tree/build/release/CMakeCache.txt"
expect 2 "build/release is of /old/place, from where this tree was moved or copied: remove it" "$sdpa" run
echo "CMAKE_HOME_DIRECTORY:INTERNAL=$work/tree" >"$work/tree/build/release/CMakeCache.txt"
expect 0 "sources: $work/tree" "$sdpa" run

# Two commands in one tree: one builds after the other, and says whom it waits for.
: >"$LOG"
export BUILD_SECONDS=0.5
"$sdpa" run >"$work/first" 2>&1 &
first=$!
while [[ ! -s $LOG ]]; do sleep 0.02; done
expect 0 "waiting for ./sdpa run (process $first), which has build/release" "$sdpa" validate
expect 0 "" "$sdpa" run --no-build
wait "$first" || failures=$((failures + 1))
if [[ $(cut -d ' ' -f 1 "$LOG" | paste -sd ' ') != "begin end begin end" ]]; then
  printf 'FAILED: two builds at once: %s\n' "$(cat "$LOG")"
  failures=$((failures + 1))
fi
# Who takes a binary waits too; the binary itself keeps nobody waiting.
printf '#!/bin/sh\nsleep 2\n' >"$tools/fp8_sdpa_run"
"$sdpa" run --no-build &
long=$!
sleep 0.2
expect 0 "" timeout 1 "$sdpa" validate --no-build
kill "$long"

[[ $failures -eq 0 ]]
