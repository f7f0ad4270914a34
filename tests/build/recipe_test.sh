#!/usr/bin/env bash
# "Add a kernel" of CONTRIBUTING.md, followed in a copy of the tree: recipe_test.sh SOURCE_DIR BUILD_DIR
# WORK_DIR. The copied kernel passes its gates by the command that the recipe gives, and the library's own
# tests, which ask what plan() chooses, stay green.
#
# A whole build takes minutes. Compiled here is what the recipe adds or edits, for the host and for
# devices, as the copy's CMake says: the kernel, and the library's host-only logic with the table of
# variants. All else, and the tests themselves, are the objects of BUILD_DIR. So nothing is seen of the compiler's
# report on resources, of machine code, of tools, and of whoever counts families in an object of BUILD_DIR.
set -euo pipefail
unset SDPA_PRESET SDPA_REQUIRE_GPU SDPA_CONFIG
source=$1 build=$2 work=$3 tree=$3/tree name=my_kernel
rm -rf "$work"
mkdir -p "$tree" "$work/bin"
tar -C "$source" -c --exclude=./build --exclude=./.git --exclude=./results . | tar -C "$tree" -x

# --- the recipe ----------------------------------------------------------------------------------

recipe=$(sed -n '/^\*\*A family\*\*/,/^## /p' "$source/CONTRIBUTING.md")
said() { grep -oF -- "$1" <<<"$recipe" | head -n 1 | grep . || { echo "FAILED: the recipe has no $1" >&2 && false; }; }

# A code block of a step, without its indentation: block STEP.
block() {
  awk -v step="$1. " 'index($0, step) == 1 { ours = 1 } /^[0-9]+\. / && index($0, step) != 1 { ours = 0 }
    ours && /^ *```/ { code = !code; next } ours && code { print substr($0, 4) }' <<<"$recipe"
}
# Paragraph N of step 4's code block.
part() { block 4 | awk -v RS= -v n="$1" 'NR == n'; }

(cd "$tree" && bash -euo pipefail <(block 1))
lists=$tree/kernels/CMakeLists.txt
sed -i "s/^sdpa_instances(sm80 .*/&\n$(said "sdpa_instances($name all)")/
  s/\${sm80_device_sources}/& $(said "\${${name}_device_sources}")/" "$lists"
family=$(said kMyKernel)
awk -v family="$family" '/^enum class Family/ { ours = 1 } ours && /^};/ { print "  " family ","; ours = 0 } 1' \
  "$source/kernels/dispatch/variant.hpp" >"$tree/kernels/dispatch/variant.hpp"
# Above sm80's: who comes first in the table is asked first.
awk -v includes="$(part 1)" -v functions="$(part 2)" -v row="$(part 3)" '
  /^#include "sm80\/kernel.cuh"/ { print includes } /^constexpr .* k_sm80_mma\{/ { print functions }
  /^    \{\.name = "sm80_mma"/ { print row } 1' \
  "$source/kernels/dispatch/variants.cpp" >"$tree/kernels/dispatch/variants.cpp"

# --- built, where it is new ----------------------------------------------------------------------

mapfile -t options < <(grep -E '^(SDPA_(CUDA|KERNELS|UNITY|WERROR|HOST)|CMAKE_BUILD_TYPE|CMAKE_CXX_COMPILER:)' "$build/CMakeCache.txt" |
  sed 's/^/-D/')
# One architecture says as much as three.
if grep -q FP8_SDPA_HAS_SM90A=1 "$build/build.ninja"; then options+=("-DSDPA_CUDA_ARCHS=90a"); fi
cmake -S "$tree" -B "$work/build" -G Ninja "${options[@]}" -DSDPA_BUILD_TESTS=OFF -DSDPA_BUILD_BENCHMARKS=OFF \
  >"$work/log" 2>&1 || { cat "$work/log" && false; }
mapfile -t objects < <(ninja -C "$work/build" -t targets all |
  grep -oE "^kernels/CMakeFiles/(fp8_sdpa\.dir/.*|.*/instances/${name}[^ ]*)\.o")
ninja -C "$work/build" -j 2 "${objects[@]}" >"$work/log" 2>&1 || { cat "$work/log" && false; }

# What BUILD_DIR's binary is linked from, the new objects before the archive whose members they replace.
link() { # TARGET OUTPUT
  local command
  command=$(ninja -C "$build" -t commands "$1" | tail -n 1 | sed -E "s# -o [^ ]+# -o $work/$2#")
  (cd "$build" && bash -c "${command/ kernels\/libfp8_sdpa.a/ ${objects[*]/#/$work/build/} kernels/libfp8_sdpa.a}")
}
link gates gates
link host_tests host_tests

# --- tried ---------------------------------------------------------------------------------------

# But for those of the reference, which knows no kernel, that take long.
"$work/host_tests" --gtest_brief=1 --gtest_filter='-*Budget*:*Inputs*:*Sampled*:Check.*:Gates.*:Oracle*:Safetensors*:Distributions*:*Fp8*:Half*'

# The PTX of all kernels, where there is any.
list=$build/tests/kernels/kernel_objects.txt
if [[ -f $list ]]; then
  link kernel_tests kernel_tests
  { cat "$list" && printf '%s\n' "${objects[@]/#/$work/build/}" | grep '\.cu\.o$'; } >"$work/list"
  SDPA_KERNEL_OBJECTS=$work/list "$work/kernel_tests" --gtest_brief=1 --gtest_filter='ToggleCodeOfAll.*-*MachineCode*'
fi

# `./sdpa test --only`, of which the build alone is played: it leaves what was linked above.
mkdir -p "$tree/build/only"
sed -E "s#\"[^\"]*/gates/gates\"#\"$work/gates\"#" "$build/tests/gates/gates_discovery.cmake" >"$tree/build/only/CTestTestfile.cmake"
printf '#!/bin/sh\n[ "$*" != --version ] || echo "cmake version 3.25.1"\n' >"$work/bin/cmake"
printf '#!/bin/sh\n' >"$work/bin/g++"
chmod +x "$work/bin/"*
command=$(said "./sdpa test --only $name")
(cd "$tree" && PATH="$work/bin:$PATH" bash -c "$command") | tee "$work/only"
grep -qE '^[1-9][0-9]* passed, 0 failed, 0 skipped$' "$work/only"
