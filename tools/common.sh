# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: where the tree is, how a step announces itself and fails.
set -Eeuo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

current_step="start"
advice=""
# step TITLE [ADVICE]: names what comes next, and what to do if it fails.
step() {
  current_step="$1"
  advice="${2:-}"
  printf -- '-- %s\n' "$1"
}

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$1" >&2
  exit 1
}

on_error() {
  local code=$?
  trap - ERR
  printf '\n%s: this step failed: %s\n' "$(basename "$0")" "$current_step" >&2
  [ -z "$advice" ] || printf '  %s\n' "$advice" >&2
  exit "$code"
}
trap on_error ERR

# build PRESET [TARGET...]: configures and builds one preset; all targets if none is named.
# `configure_with` holds further arguments of cmake.
configure_with=()
build() {
  local preset="$1"
  shift
  step "configure $preset" "the message above names what is missing"
  cmake --preset "$preset" "${configure_with[@]}" >"$(log_of "$preset")" 2>&1 || { cat "$(log_of "$preset")" >&2; false; }
  step "build $preset ${*:-(everything)}" "the first error above is the one to read"
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}"
}

log_of() {
  mkdir -p build
  printf 'build/configure-%s.log' "$1"
}
