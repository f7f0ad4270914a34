# ./sdpa measure: sourced by the launcher, whose functions and variables it uses.
# shellcheck shell=bash

# measure [--out DIR]: ours and the peers on one GPU, and what follows from the files: comparison,
# false alarms, report. A part that declines, fails or takes too long does not keep the next from
# running; the exit code is the worst one.
measure() {
  local out worst=0 python=python3 no_build=0 with_sweep=0 folders=() part
  out="results/$(date -u +%Y%m%d-%H%M%S)-measure"
  while [[ $# -gt 0 ]]; do
    case $1 in
      --out | --python)
        [[ $# -ge 2 ]] || die "measure: $1 needs a value"
        if [[ $1 == --out ]]; then out=${2%/}; else python=$2; fi
        shift 2
        ;;
      --sweep) with_sweep=1 && shift ;;
      --no-build) no_build=1 && shift ;;
      *) die "measure: got '$1', expected --out DIR, --python INTERPRETER, --sweep or --no-build" ;;
    esac
  done
  for part in ceilings ladder hopper sweep; do
    [[ ! -d $out/$part ]] || die "measure: $out has the $part of another run, expected a new or an empty folder"
  done
  local tools=(fp8_sdpa_ceilings fp8_sdpa_peers fp8_sdpa_compare fp8_sdpa_report)
  [[ $with_sweep -eq 0 ]] || tools+=(fp8_sdpa_sweep)
  [[ $no_build -eq 1 ]] || set_up
  lock_tree "$preset"
  if [[ $no_build -eq 0 ]]; then
    offer_plots
    echo "building (preset $preset)" >&2
    build "$preset" -- "${tools[@]}" >&2
  fi
  unlock_tree
  for part in "${tools[@]}"; do
    [[ -x $(binary_of "$part") ]] ||
      die "--no-build, but $(binary_of "$part") is not there: run once without it"
  done

  local start_of_all=$SECONDS
  part_of_measure 30 ceilings --out "$out/ceilings"
  part_of_measure 150 peers --suite all --seconds 60 --python "$python" --out "$out/ladder" \
    --variants 'stage_c,stage_c_cp_async,stage_c_cp_async_vec_pv,stage_c_cp_async_wmma_pv*,sm*'
  part_of_measure 370 peers --suite goals --seconds 270 --python "$python" --out "$out/hopper"
  [[ $with_sweep -eq 0 ]] || part_of_measure 200 sweep --out "$out/sweep"
  for part in ladder hopper ceilings sweep; do
    [[ ! -d $out/$part ]] || folders+=("$out/$part")
  done
  if [[ ${#folders[@]} -eq 0 ]]; then
    echo "nothing was measured: no comparison and no report"
    exit "$worst"
  fi
  compare_with_peers "$out"
  if [[ -s $out/ladder/perf_baseline.json ]]; then
    part_of_measure 60 compare --aa "$out/ladder" --aa-splits 200 --aa-record "$out/aa.json"
  fi
  part_of_measure 60 report "${folders[@]}" --kill-matrix "$root/results/kill_matrix.json" \
    --out "$out"
  echo "results: $out after $((SECONDS - start_of_all)) s; ./sdpa report ${folders[*]} --out $out" \
    "makes the page anew, on any machine"
  exit "$worst"
}

# Ours against each peer that was measured. That a peer is faster is a finding and no failure.
compare_with_peers() {
  local file=$1/hopper/benchmark.json peers peer found=() code=0
  peers="cudnn_fp8 cudnn_bf16 torch_flash torch_cudnn torch_efficient flash3_fp8 flash3_bf16"
  for peer in $peers; do
    if grep -q "\"forward/$peer/" "$file" 2>/dev/null; then found+=("$peer"); fi
  done
  if [[ ${#found[@]} -eq 0 ]]; then
    echo "compare: no peer was measured; COMPARE.md is left out"
    return
  fi
  "$(binary_of fp8_sdpa_compare)" "$file" "$file" --min-speedup 1 --common --variant-new auto \
    --variant-old "$(IFS=,; echo "${found[*]}")" --out "$1/COMPARE.md" >/dev/null || code=$?
  if [[ $code -gt $exit_failed ]]; then
    echo "compare: exit code $code; COMPARE.md is left out"
  else
    echo "written: $1/COMPARE.md"
  fi
}

# part_of_measure SECONDS TOOL ARGUMENTS...: runs it for no longer than that, and keeps the worst
# exit code in `worst`.
part_of_measure() {
  local limit=$1 name=$2 code=0 start=$SECONDS
  shift 2
  timeout "$limit" "$(binary_of "fp8_sdpa_$name")" "$@" || code=$?
  if [[ $code -eq 124 ]]; then
    echo "$name: stopped after $limit s; what it has not written is left out"
  else
    echo "$name: exit code $code after $((SECONDS - start)) s"
  fi
  # Stopped, or ended by a signal.
  [[ $code -le $exit_bad_usage ]] || code=$exit_failed
  if [[ $code -gt $worst ]]; then worst=$code; fi
}
