#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# paceline beside Gloo (PyTorch 2.15), in turns, on this machine: all-reduce over TCP loopback.
# Installs PyTorch into a virtual environment of its own (.deps/peers; several GB, once).
# Usage: bench/peers/allreduce.sh [ROUNDS]     (default 5; needs `make test` or a release build first)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build="$root/build/release"
venv="$root/.deps/peers"
for program in "$build/paceline" "$build/bench/allreduce_bench"; do
  if [[ ! -x "$program" ]]; then
    echo "error: $program is missing; build it first: cmake --preset release && cmake --build --preset release" >&2
    exit 1
  fi
done
if ! "$venv/bin/python" -c 'import sys, torch; sys.exit(not torch.__version__.startswith("2.15."))' 2>/dev/null; then
  echo "installing PyTorch 2.15 with Gloo into .deps/peers (several GB, once)" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q 'torch==2.15.*' numpy
fi
exec "$venv/bin/python" "$root/bench/peers/compare.py" "$build" "${1:-5}"
