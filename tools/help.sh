#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Says what `make` can do and where to start.
set -euo pipefail
cat <<'TEXT'
paceline trains a LibTorch model on N ranks: equal shares, one ring.

  make demo      set up what is missing, build, and train a CNN on Fashion-MNIST with two ranks
  make test      set up, build with g++, run every test that is not slow, also under sanitizers
  make test-all  the same, plus clang, clang-tidy and the slow tests
  make setup     only install what is missing: system packages, LibTorch
  make clean     remove build/ (downloads in .deps/ stay)

By hand, for one kind of build (dev release asan tsan clang; tidy only builds):

  cmake --preset dev && cmake --build --preset dev && ctest --preset dev -LE slow -j2

Your own LibTorch is used if PACELINE_LIBTORCH names its folder, or if python3 has torch >= 2.7.
Start reading at README.md; ARCHITECTURE.md is one page.
TEXT
