#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare clone to a trained model: sets up, builds what training needs, trains on two ranks.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
tools/setup.sh
build release paceline ddp_fashion_mnist
step "train on two ranks: each has half of every batch, gradients meet in a ring" \
  "the lines above say which rank failed and why"
build/release/paceline run -n 2 -- build/release/examples/ddp_fashion_mnist "$@"
