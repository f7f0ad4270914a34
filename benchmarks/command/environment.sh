# What the launcher needs installed: system packages, and matplotlib for figures. For `sdpa`, which reads this
# file.

# No pipe: with pipefail, whoever writes into one that nobody reads to its end decides the status.
has_header() { g++ -std=c++20 -E -x c++ - <<<"#include <$1>" >/dev/null 2>&1; }
has_library() { g++ -x c++ - -o /dev/null "-l$1" <<<'int main() {}' >/dev/null 2>&1; }

# Names the system packages (Debian and Ubuntu) of what is not there.
missing_packages() {
  command -v cmake >/dev/null || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  command -v g++ >/dev/null || echo g++
  has_header gtest/gtest.h || echo libgtest-dev
  has_header benchmark/benchmark.h || echo libbenchmark-dev
  has_header nlohmann/json.hpp || echo nlohmann-json3-dev
  # Its headers come with any part of Boost.
  has_library boost_context || echo libboost-context-dev
  has_header CLI/CLI.hpp || echo libcli11-dev
  has_header valijson/validator.hpp || echo libvalijson-dev
  [[ $command != test && $command != wheel ]] || python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
}

set_up() {
  local packages by_hand as_root=""
  packages=$(missing_packages | paste -sd ' ')
  if [[ -n $packages ]]; then
    [[ $(id -u) -eq 0 ]] || as_root="sudo "
    by_hand="${as_root}apt-get update && ${as_root}apt-get install -y $packages"
    if ! command -v apt-get >/dev/null; then
      die "missing: $packages (these are Debian's names; this system has no apt-get)"
    fi
    if [[ ${SDPA_NO_INSTALL:-0} == 1 ]]; then
      die "missing: $packages. SDPA_NO_INSTALL=1, so please run: $by_hand"
    fi
    if [[ -n $as_root ]] && ! sudo -n true 2>/dev/null; then
      die "missing: $packages. sudo asks for a password, so please run: $by_hand"
    fi
    echo "installing $packages"
    start_log "$log_dir/install.log"
    # shellcheck disable=SC2086  # a list of words
    if ! { ${as_root}apt-get update -qq &&
      ${as_root}env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $packages; } \
      >"$log_dir/install.log" 2>&1; then
      tail -n 20 "$log_dir/install.log" >&2
      die "the packages could not be installed; please run: $by_hand"
    fi
  fi
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  if [[ $(printf '%s\n3.25\n' "$version" | sort -V | head -n 1) != 3.25 ]]; then
    die "CMake $version is too old: 3.25 or newer is needed"
  fi
}

# Figures of a report are drawn by matplotlib. Where it is not there and cannot be installed without
# asking, the report says so and goes on without them.
offer_plots() {
  local python as_root=()
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import matplotlib' 2>/dev/null; then return; fi
  done
  [[ $(id -u) -eq 0 ]] || as_root=(sudo -n)
  if [[ ${SDPA_NO_INSTALL:-0} == 1 ]] || ! command -v apt-get >/dev/null ||
    ! "${as_root[@]}" true 2>/dev/null; then
    return
  fi
  echo "installing python3-matplotlib" >&2
  start_log "$log_dir/install.log"
  if ! { "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-matplotlib; } \
    >"$log_dir/install.log" 2>&1; then
    echo "sdpa: python3-matplotlib could not be installed; the log is $log_dir/install.log" >&2
  fi
}
