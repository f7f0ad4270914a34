#!/usr/bin/env bash
# The launcher's bad input and its set-up: launcher_test.sh SDPA WORK_DIR.
set -uo pipefail
# What the caller sets for its own run of the launcher is not what is tested here.
unset SDPA_PRESET SDPA_NO_INSTALL SDPA_REQUIRE_GPU SDPA_CONFIG
work=$2
rm -rf "$work"
mkdir -p "$work/tree" "$work/bin"
cp "$1" "$work/tree/sdpa"
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
expect 2 "test takes no arguments; got 'small'" "$sdpa" test small
expect 2 "fp8_sdpa_run is not there" "$sdpa" run --no-build
expect 0 "usage: ./sdpa COMMAND" "$sdpa" help
expect 0 "usage: ./sdpa COMMAND" "$sdpa"
cd / && expect 2 "unknown command 'x'" "$sdpa" x

# --no-build runs the binary as it is, with the arguments as they are but for itself.
tools=$work/tree/build/release/benchmarks
mkdir -p "$tools"
printf '#!/bin/sh\nprintf "<%%s>" "$@"; exit 7\n' >"$tools/fp8_sdpa_run"
chmod +x "$tools/fp8_sdpa_run"
expect 7 "<--shapes><two words><--iters><5>" \
  "$sdpa" run --shapes "two words" --no-build --iters 5

# A machine without CMake and without headers.
for tool in bash readlink dirname nproc mkdir id paste cat sed grep tail env; do
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

[[ $failures -eq 0 ]]
