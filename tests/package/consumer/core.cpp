// SPDX-License-Identifier: Apache-2.0
#include <paceline/base/types.h>

int main() { return paceline::name_of(paceline::Dtype::kBF16) == "bf16" ? 0 : 1; }
