#!/usr/bin/env bash
# A kernel's file is compiled for the device and for the host executor. A function of one name in both objects
# would be one function in the program, whichever the linker keeps: a launch on a GPU would run the host's. What
# both have must carry its backend in its name (inline namespace GPU_BACKEND, or a template argument).
#
#   one_definition_test.sh BUILD
set -euo pipefail

build=$1
# Functions and weak symbols that an object defines, without those of the standard library.
defined() {
  find "$build/kernels" -path '*instances*' -name "$1" -print0 | xargs -0 nm -C --defined-only |
    awk '$2 ~ /^[TW]$/ { $1 = $2 = ""; print }' | grep -v -E '^ *(\S+ )*(std|__gnu_cxx|__gnu_cuda)::' | sort -u
}
device=$(defined '*.cu.o')
host=$(defined '*_host.cpp.o')
[[ $(wc -l <<<"$device") -gt 20 && $(wc -l <<<"$host") -gt 20 ]] || {
  echo "no objects of kernels for both backends under $build/kernels" >&2
  exit 1
}
both=$(comm -12 <(echo "$device") <(echo "$host"))
if [[ -n $both ]]; then
  echo "defined for the device and for the host executor under one name:" >&2
  echo "$both" >&2
  exit 1
fi
