#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cuda_stand_ins.sh TORCH_LIB FOLDER: lets a PyTorch wheel that was built for CUDA run on the CPU without CUDA's libraries.
# The wheel wants them at import (GBs of them), although nothing here calls one. So there comes one small library under all
# their names, which has the symbols that are wanted; whoever calls one is stopped with a message.
set -euo pipefail
torch_lib="$1"
folder="$2"
at_import=("$torch_lib"/libtorch_{python,cuda,nvshmem}.so)
libraries='lib(cublas|cublasLt|cudnn|cufft|cufile|cusparse|cusparseLt|nccl|nvrtc|nvshmem_host)\.so\.[0-9]+'
symbols='(cublas|cudnn|cufft|cuFile|cusparse|nccl|nvrtc|nvshmem)[A-Za-z0-9_]*'

existing=()
for library in "${at_import[@]}"; do
  [[ -e "$library" ]] && existing+=("$library")
done

wanted_symbols() {
  comm -23 <(nm -D --undefined-only "${existing[@]}" | sed -nE "s/^ +U ($symbols)(@.*)?\$/\\1/p" | sort -u) \
    <(nm -D --defined-only "${existing[@]}" | sed -nE "s/^.* ($symbols)(@.*)?\$/\\1/p" | sort -u)
}

source_text() {
  cat <<'C'
#include <stdio.h>
#include <stdlib.h>
void refuse(void) {
  fputs("bench/peers: CUDA was called, but there are only stand-ins of its libraries here\n", stderr);
  abort();
}
C
  local symbol
  while read -r symbol; do
    printf 'void %s(void) __attribute__((alias("refuse")));\n' "$symbol"
  done
}

mkdir -p "$folder"
wanted_symbols | source_text | cc -w -fno-builtin -shared -fPIC -x c - -o "$folder/stand_ins.so"
readelf -d "${existing[@]}" | sed -nE "s/.*NEEDED.*\\[($libraries)\\]/\\1/p" | sort -u | while read -r name; do
  ln -sfn stand_ins.so "$folder/$name"
done
