# The PyTorch operators: what builds and tests them, for `sdpa`, which reads this file.

# PyTorch and what builds and tests the wheel are in an environment of their own, which takes a minute to
# install: in the background, beside the first build.
torch_install=""
begin_torch() {
  local venv=$root/build/python/venv
  if cmp -s "$root/python/requirements.txt" "$venv/complete"; then return; fi
  # Its tests say that they were skipped, and why.
  [[ ${SDPA_NO_INSTALL:-0} != 1 ]] || return 0
  mkdir -p "$root/build/python"
  start_log "$log_dir/torch.log"
  {
    rm -f "$venv/complete"
    { [[ -x $venv/bin/python ]] || python3 -m venv "$venv"; } &&
      "$venv/bin/python" -m pip install -q -r "$root/python/requirements.txt" &&
      cp "$root/python/requirements.txt" "$venv/complete"
  } >"$log_dir/torch.log" 2>&1 &
  torch_install=$!
}
finish_torch() {
  [[ -n $torch_install ]] || return 0
  if ! wait "$torch_install"; then
    tail -n 5 "$log_dir/torch.log" >&2
    die "PyTorch could not be installed; the log is $log_dir/torch.log. SDPA_NO_INSTALL=1 tests without it" \
      "$exit_failed"
  fi
  torch_install=""
}

# ./sdpa test --torch: the wheel and the operators' tests alone.
run_torch_tests() {
  lock_tree "$preset"
  (build "$preset" -- fp8_sdpa) || exit $?
  finish_torch
  run_part "$preset" -L python
  unlock_tree
}

# ./sdpa wheel [--out DIR]
run_wheel() {
  local out=$root/build/wheel
  if [[ ${1:-} == --out && $# -eq 2 && -n $2 ]]; then
    out=$(readlink -m "$2")
  elif [[ $# -gt 0 ]]; then
    die "wheel: got '$1', expected --out DIR or nothing"
  fi
  set_up
  begin_torch
  lock_tree "$preset"
  build "$preset" -- fp8_sdpa
  finish_torch
  [[ -f $root/build/python/venv/complete ]] || die "wheel: SDPA_NO_INSTALL=1, and build/python has no PyTorch"
  "$root/python/wheel.sh" "$root/build/python/venv/bin/python" "$root/build/$preset" "$root/build/python/wheel" ||
    die "the wheel could not be built" "$exit_failed"
  mkdir -p "$out" && cp "$root"/build/python/wheel/*.whl "$out/"
  ls "$out"/*.whl
}
