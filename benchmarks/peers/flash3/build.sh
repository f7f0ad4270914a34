#!/usr/bin/env bash
# FlashAttention-3's FP8 and bf16 forward kernels as one shared library, for fp8_sdpa_peers:
#
#   build.sh FLASH_ATTENTION_DIR CUTLASS_INCLUDE OUT.so [JOBS]
#
# FLASH_ATTENTION_DIR: a checkout of Dao-AILab/flash-attention, or its folder hopper; CUTLASS_INCLUDE: the
# folder include of the CUTLASS that it pins. Needs nvcc (on PATH, or CUDACXX) and neither Python nor a
# network. FLASH3_SOURCE of the environment says in results which commit that is. Objects are kept in OUT.so.d
# and made anew where a source is newer.
#
# The macros leave out what no problem of ours reaches: they say which kernels are there, not what is in them
# (FlashAttention's static_switch.h alone reads them).
set -euo pipefail

if (($# < 3)); then
  sed -n '2,4p' "$0" >&2
  exit 2
fi
hopper=$(realpath "$1")
[[ ! -d $hopper/hopper ]] || hopper=$hopper/hopper
cutlass=$(realpath "$2")
out=$(realpath -m "$3")
jobs=${4:-$(nproc)}
here=$(realpath "$(dirname "$0")")
for file in "$hopper/flash_fwd_launch_template.h" "$cutlass/cutlass/cutlass.h"; do
  if [[ ! -f $file ]]; then
    echo "build.sh: $file is not there" >&2
    exit 2
  fi
done

export nvcc=${CUDACXX:-nvcc} objects=$out.d
export flags="-O3 -std=c++17 --ftemplate-backtrace-limit=0 --expt-relaxed-constexpr --expt-extended-lambda
  --use_fast_math -lineinfo -Xcompiler -fPIC -gencode arch=compute_90a,code=sm_90a
  -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED -DCUTLASS_ENABLE_GDC_FOR_SM90 -DCUTLASS_DEBUG_TRACE_LEVEL=0 -DNDEBUG
  -DFLASHATTENTION_DISABLE_BACKWARD -DFLASHATTENTION_DISABLE_APPENDKV
  -DFLASHATTENTION_DISABLE_LOCAL -DFLASHATTENTION_DISABLE_SOFTCAP
  -DFLASHATTENTION_DISABLE_FP16 -DFLASHATTENTION_DISABLE_HDIM96 -DFLASHATTENTION_DISABLE_HDIM192
  -DFLASHATTENTION_DISABLE_HDIMDIFF64 -DFLASHATTENTION_DISABLE_HDIMDIFF192 -DFLASHATTENTION_DISABLE_SM8x"
export includes="-I$hopper -I$cutlass -I$here/../../.."
export source_name=${FLASH3_SOURCE:-FlashAttention-3}

# Every instance that the library calls: split kernels, and those that gather pages, always pack the heads of a
# group. Of those of pages alone sequences have lengths of their own. Of bf16, dense tensors alone.
sources=("$here/flash3_library.cpp" "$hopper/flash_fwd_combine.cu" "$hopper/flash_prepare_scheduler.cu")
for dim in 256 128 64; do
  for kind in "" packgqa_ split_ paged_ paged_split_; do
    sources+=("$hopper/instantiations/flash_fwd_hdim${dim}_e4m3_${kind}sm90.cu")
  done
  sources+=("$hopper/instantiations/flash_fwd_hdim${dim}_bf16_sm90.cu")
done

compile() {
  local object lengths=-DFLASHATTENTION_DISABLE_VARLEN
  [[ $1 != *paged* && $1 != *prepare* ]] || lengths=
  object=$objects/$(basename "$1").o
  [[ ! $object -nt $1 ]] || return 0
  # shellcheck disable=SC2086  # lists of words
  $nvcc $flags $lengths $includes "-DFLASH3_SOURCE=\"$source_name\"" -c "$1" -o "$object.part"
  mv "$object.part" "$object"
  basename "$1"
}
export -f compile

mkdir -p "$objects"
# shellcheck disable=SC2016  # for the other shell
printf '%s\0' "${sources[@]}" | xargs -0 -P "$jobs" -I{} bash -euo pipefail -c 'compile "$1"' _ {}
$nvcc -shared -cudart static -gencode arch=compute_90a,code=sm_90a -o "$out" "$objects"/*.o \
  -Xlinker -Bsymbolic -Xlinker --exclude-libs=ALL -Xlinker -z,defs
echo "$out"
