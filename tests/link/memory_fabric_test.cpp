// SPDX-License-Identifier: Apache-2.0
#include "paceline/link/memory/memory_fabric.h"

#include "tests/link/link_suite.h"

namespace paceline::link {
namespace {

LinkKind memory(const std::string& name, std::size_t capacity_bytes) {
  return {.name = name, .fabric_name = "memory", .spins = true, .make = [=](int world) {
            return make_memory_fabrics(world, {.capacity_bytes = capacity_bytes});
          }};
}

INSTANTIATE_TEST_SUITE_P(Memory,
                         LinkSuite,
                         ::testing::Values(memory("default", MemoryOptions{}.capacity_bytes),
                                           memory("odd", 4099)),
                         name_of_kind);

TEST(MemoryFabric, works_with_room_for_a_single_byte) {
  const auto fabrics = make_memory_fabrics(2, {.capacity_bytes = 1});
  const Bytes bytes = pattern(2000, 1);
  std::jthread sender([&] { send_whole(*fabrics[0], 1, bytes); });
  EXPECT_TRUE(same(recv_whole(*fabrics[1], 0, bytes.size()), bytes));
}

TEST(MemoryFabric, refuses_an_empty_world_and_an_empty_ring) {
  EXPECT_THROW((void)make_memory_fabrics(0), UsageError);
  EXPECT_THROW((void)make_memory_fabrics(2, {.capacity_bytes = 0}), UsageError);
}

}  // namespace
}  // namespace paceline::link
