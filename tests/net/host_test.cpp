// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/host.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace paceline::net {
namespace {

TEST(Host, has_a_name) { EXPECT_FALSE(host_name().empty()); }

TEST(Host, cores_follow_the_affinity) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ::sched_setaffinity(0, sizeof before, &before);
}

TEST(Host, a_quota_is_whole_cores_and_at_least_one) {
  EXPECT_EQ(cores_of_quota("250000 100000"), 2);
  EXPECT_EQ(cores_of_quota("50000 100000"), 1);
  EXPECT_FALSE(cores_of_quota("max 100000"));
  EXPECT_FALSE(cores_of_quota("-1 100000"));
  EXPECT_FALSE(cores_of_quota("100 0"));
  EXPECT_FALSE(cores_of_quota(""));
  EXPECT_FALSE(cores_of_quota("12"));
}

}  // namespace
}  // namespace paceline::net
