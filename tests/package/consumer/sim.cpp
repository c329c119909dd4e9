// SPDX-License-Identifier: Apache-2.0
// Counts what each link of a ring of four carries: 12 elements of 8.
#include <paceline/sim/count.h>

int main() {
  const paceline::plan::Shape shape{
      .what = paceline::Collective::kAllReduce, .world = 4, .count = 8};
  const auto links = paceline::sim::count(paceline::Algorithm::kRing, shape, paceline::Dtype::kF32);
  for (const auto& link : links)
    if (link.elements != 12) return 1;
  return links.size() == 4 ? 0 : 1;
}
