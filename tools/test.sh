#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds every kind of build that counts and runs their tests in one go, so one summary tells all.
#   tools/test.sh         g++, and core and sim under ASan+UBSan and under TSan; no slow tests
#   tools/test.sh --all   also clang, clang-tidy and the slow tests
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

presets=(release asan tsan)
selection=(--label-exclude '^slow$')
if [ "${1:-}" = "--all" ]; then
  tools/setup.sh --lint
  presets+=(clang)
  selection=()
else
  tools/setup.sh
fi

for preset in "${presets[@]}"; do
  # The command under sanitizers too: it takes minutes to compile.
  [ "${1:-}" != "--all" ] || configure_with=(-DPACELINE_APPS=ON)
  build "$preset"
  configure_with=()
done
if [ "${1:-}" = "--all" ]; then
  build release data_parallel ledger_ddp
  step "check the format" "clang-format -i FILE mends it"
  git ls-files -z '*.cpp' '*.h' | xargs -0 clang-format --dry-run --Werror
  build tidy
fi

# One ctest over all build folders: names of the sanitizer builds start with the preset.
printf 'subdirs("%s")\n' "${presets[@]}" >build/CTestTestfile.cmake
# TSan of g++ 12 cannot start where addresses are too random (vm.mmap_rnd_bits above 28).
plain_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then plain_addresses=(setarch "$(uname -m)" -R); fi
step "run the tests of: ${presets[*]}" "build/Testing/Temporary/LastTest.log has all output"
"${plain_addresses[@]}" ctest --test-dir build --no-tests=error --output-on-failure --parallel "$(nproc)" \
  "${selection[@]}"
