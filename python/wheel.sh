#!/usr/bin/env bash
# wheel.sh PYTHON BUILD-DIR WORK-DIR: builds the wheel on the library of a build folder, for PyTorch's users of
# any Linux that auditwheel says; WORK-DIR/*.whl. PYTHON has requirements.txt.
set -euo pipefail
python=$1 build_dir=$2 work_dir=$3
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

rm -rf "$work_dir"
cmake --install "$build_dir" --prefix "$work_dir/prefix" >/dev/null
CMAKE_PREFIX_PATH=$work_dir/prefix "$python" -m pip wheel -q --no-build-isolation --no-deps -w "$work_dir/linux" \
  "$source_dir"
# PyTorch's own libraries are in the process already.
PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair --exclude 'libtorch*.so' -w "$work_dir" \
  "$work_dir"/linux/*.whl >"$work_dir/auditwheel.log" 2>&1 || {
  cat "$work_dir/auditwheel.log" >&2
  exit 1
}
