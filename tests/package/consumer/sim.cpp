// SPDX-License-Identifier: Apache-2.0
#include <paceline/base/types.h>

int main() { return paceline::size_of(paceline::Dtype::kF64) == 8 ? 0 : 1; }
