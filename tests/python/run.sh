#!/usr/bin/env bash
# run.sh SOURCE-DIR BUILD-DIR WORK-DIR wheel|lint|models|NAME: builds the wheel on the library of the build folder
# and unpacks it, checks the style of the Python files, or runs the tests of files against that wheel.
set -euo pipefail
source_dir=$1 build_dir=$2 work_dir=$3 what=$4
python=$source_dir/build/python/venv/bin/python

if [[ ! -f $source_dir/build/python/venv/complete ]]; then
  printf '%s: Skipped\nno PyTorch in build/python: ./sdpa test installs it\n' "$what"
  exit 77
fi
case $what in
  wheel)
    "$source_dir/python/wheel.sh" "$python" "$build_dir" "$work_dir/wheel"
    rm -rf "$work_dir/site"
    "$python" -m pip install -q --no-deps --target "$work_dir/site" "$work_dir"/wheel/*.whl
    size=$(stat -c %s "$work_dir"/wheel/*.whl)
    echo "$(basename "$work_dir"/wheel/*.whl): $size bytes"
    # The promise: any Python, many a Linux, no library beside PyTorch's and the system's.
    [[ $(basename "$work_dir"/wheel/*.whl) == *-py3-none-manylinux_2_* ]]
    [[ $size -le 40000000 ]]
    ! objdump -p "$work_dir/site/fp8_sdpa/_fp8_sdpa.so" | grep NEEDED | grep -vE 'lib(torch|torch_cpu|stdc\+\+|m|gcc_s|c)\.so|ld-linux'
    ;;
  lint)
    "$python" -m ruff check -q --no-cache --config "$source_dir/python/pyproject.toml" "$source_dir"/{python,tests/python}
    "$python" -m ruff format -q --no-cache --check --config "$source_dir/python/pyproject.toml" "$source_dir"/{python,tests/python}
    ;;
  *)
    cd "$source_dir/tests/python"
    files=("${what}_test.py")
    [[ $what != models ]] || files=(hooks_test.py examples_test.py) # transformers takes long to import
    OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$work_dir/site "$python" -m pytest -q -p no:cacheprovider --tb=short \
      --show-capture=no "${files[@]}"
    ;;
esac
