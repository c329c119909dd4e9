#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing and nothing else: system packages by name, then LibTorch into .deps.
# Run again, it finds everything there and needs neither network nor time.
#   tools/setup.sh          what building, testing and training need
#   tools/setup.sh --lint   also what make test-all needs: clang, clang-tidy, clang-format, a browser
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

libtorch_version="2.15"   # the wheel that is fetched
libtorch_oldest="2.7"     # the oldest that is accepted when it is there already

packages=(
  g++ cmake ninja-build ccache                             # build
  libcli11-dev nlohmann-json3-dev libfmt-dev               # command line, JSON, text
  libhwy-dev libsodium-dev zlib1g-dev                      # SIMD, HMAC, .gz
  libgtest-dev libbenchmark-dev                            # tests, benches
  dataset-fashion-mnist                                    # what the demo trains on
  python3 python3-pip ca-certificates                      # fetch LibTorch
  python3-venv                                             # bench/peers, in its own environment
  iproute2                                                 # the two-hosts test
)
if [ "${1:-}" = "--lint" ]; then packages+=(clang clang-tidy clang-format chromium); fi

missing_packages() {
  local installed
  installed="$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)"
  local package
  for package in "${packages[@]}"; do
    grep -qxF "installed $package" <<<"$installed" || printf '%s\n' "$package"
  done
}

# Prefix that makes a command run as root; fails when there is no way.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

may_be_root() {
  [ "$(id -u)" -eq 0 ] && return 0
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null || [ -t 0 ]
}

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    printf -- '-- not a Debian system: please have these installed: %s\n' "${packages[*]}"
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return
  local install=(apt-get install --yes --no-install-recommends "${missing[@]}")
  local line="apt-get update && ${install[*]}"
  if ! may_be_root; then
    printf 'setup.sh: system packages are missing, and there is neither root nor sudo. Run once as root:\n\n' >&2
    printf '  %s\n\n' "$line" >&2
    exit 1
  fi
  step "install system packages: ${missing[*]}" \
    "is the network there? By hand, as root: $line"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive "${install[@]}" -qq
}

# Where LibTorch is already, or nothing. In the order in which cmake/FindLibTorch.cmake searches.
present_libtorch() {
  local found="${PACELINE_LIBTORCH:-}"
  [ -n "$found" ] || found="$(python3 cmake/find_torch.py "$libtorch_oldest" 2>/dev/null || true)"
  [ -n "$found" ] || [ ! -d .deps/libtorch ] || found="$root/.deps/libtorch/torch"
  [ -n "$found" ] || found="$(compgen -G ".deps/venv/lib/python3*/site-packages/torch" || true)"
  printf '%s' "$found"
}

# fetch REQUIREMENT PATTERN: downloads one wheel into .deps/wheels, whole or not at all.
fetch() {
  compgen -G ".deps/wheels/$2" >/dev/null && return
  step "download $1" "is the network there? A second try keeps what is whole and fetches this one again"
  rm -rf .deps/wheels.partial
  "$python" -m pip download --no-deps --only-binary :all: --no-cache-dir \
    --dest .deps/wheels.partial "$1"
  mkdir -p .deps/wheels
  mv .deps/wheels.partial/*.whl .deps/wheels/
  rmdir .deps/wheels.partial
}

# The CUDA major that the torch wheel was built with; empty for a CPU wheel.
cuda_major() {
  "$python" - "$1" <<'PYTHON'
import re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
text = wheel.read(name).decode()
found = re.search(r"^Requires-Dist: (?:cuda-toolkit\S*==|nvidia-\w+-cu)(\d+)", text, re.M)
print(found.group(1) if found else "")
PYTHON
}

# libtorch_cpu.so of a CUDA wheel wants libcudart and libcupti to load, and no more of CUDA.
fetch_cuda_libraries() {
  local major="$1"
  [ -n "$major" ] || return 0
  local suffix=""
  [ "$major" -ge 13 ] || suffix="-cu$major"
  fetch "nvidia-cuda-runtime$suffix==$major.*" "nvidia_cuda_runtime*.whl"
  fetch "nvidia-cuda-cupti$suffix==$major.*" "nvidia_cuda_cupti*.whl"
}

# A plain folder, not a virtual environment: that could not be moved into place once it is whole.
install_libtorch() {
  python=/usr/bin/python3
  "$python" -m pip --version >/dev/null 2>&1 || python=python3
  printf -- '-- LibTorch comes as the Python wheel, 0.5 GB to download, 1.2 GB on disk\n'
  fetch "torch==$libtorch_version.*" "torch-$libtorch_version.*.whl"
  fetch_cuda_libraries "$(cuda_major .deps/wheels/torch-"$libtorch_version".*.whl)"
  step "unpack LibTorch into .deps/libtorch" "is the disk full? It needs 2 GB"
  rm -rf .deps/libtorch.partial
  "$python" -m pip install --quiet --no-deps --no-index --no-compile --no-warn-script-location \
    --root-user-action=ignore --target .deps/libtorch.partial .deps/wheels/*.whl
  rm -rf .deps/libtorch
  mv .deps/libtorch.partial .deps/libtorch
  rm -rf .deps/wheels
}

install_packages
mkdir -p .deps
exec 9>.deps/lock
flock 9   # two `make` at once: the second waits, then finds everything there
libtorch="$(present_libtorch)"
if [ -z "$libtorch" ]; then
  install_libtorch
  libtorch="$(present_libtorch)"
fi
[ -e "$libtorch/lib/libtorch_cpu.so" ] ||
  fail "there is no lib/libtorch_cpu.so in '$libtorch'; PACELINE_LIBTORCH must name LibTorch's folder"
printf -- '-- set-up is complete; LibTorch: %s\n' "$libtorch"
