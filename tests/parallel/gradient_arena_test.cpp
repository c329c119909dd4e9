// SPDX-License-Identifier: Apache-2.0
// The allocator: who gets a block, who frees it, and what is left to the allocator that was there.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include <c10/core/CPUAllocator.h>

#include "arena_support.h"

namespace paceline {
namespace tests {

std::atomic<std::size_t> in_use_of_user = 0;

void free_of_user(void* data) {
  if (data == nullptr) return;
  --in_use_of_user;
  std::free(data);
}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  void* const data = bytes == 0 ? nullptr : std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (data != nullptr) ++in_use_of_user;
  return {data, data, &free_of_user, c10::Device(c10::kCPU)};
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const { return &free_of_user; }
std::size_t CountingAllocator::in_use() { return in_use_of_user; }

// All tests of this program run on top of a foreign allocator, with a priority of its own.
const bool installed = [] {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, 3);
  return true;
}();

}  // namespace tests

namespace {

using tests::arena_of;
using tests::block_sized;
using tests::CountingAllocator;
using tests::kBlock;
using tests::kSide;
using ::torch::Tensor;

TEST(GradientArena, gives_blocks_to_what_has_a_parameters_size_while_it_serves_the_thread) {
  const auto arena = arena_of();
  EXPECT_FALSE(arena->holds(block_sized()));
  arena->serve_here();
  EXPECT_TRUE(arena->holds(block_sized()));
  EXPECT_TRUE(arena->holds(::torch::empty({kSide * kSide / 2}, ::torch::kDouble)));
  EXPECT_FALSE(arena->holds(::torch::empty({kSide, kSide + 1})));
  EXPECT_FALSE(arena->holds(::torch::empty({kSide})));
  std::jthread([&] { EXPECT_FALSE(arena->holds(block_sized())); }).join();
  arena->leave_here();
  EXPECT_FALSE(arena->holds(block_sized()));
  EXPECT_FALSE(arena->holds(Tensor(::torch::empty({kSide, kSide}, ::torch::kMeta))));
}

TEST(GradientArena, gives_no_blocks_below_64_kib) {
  GradientArena arena(std::make_shared<tests::LimitedEngine>(1 << 20),
                      std::vector<NamedTensor>{{"a", ::torch::zeros({kSide, kSide - 1})}});
  arena.serve_here();
  EXPECT_FALSE(arena.holds(::torch::empty({kSide, kSide - 1})));
  arena.leave_here();
  EXPECT_EQ(GradientArena::kSmallestBytes, kBlock);
}

TEST(GradientArena, chains_to_the_allocator_of_the_user_for_all_else) {
  const auto arena = arena_of();
  const std::size_t before = CountingAllocator::in_use();
  arena->serve_here();
  const Tensor block = block_sized();
  EXPECT_EQ(CountingAllocator::in_use(), before);
  {
    const Tensor other = ::torch::empty({kSide, kSide + 1});
    EXPECT_EQ(CountingAllocator::in_use(), before + 1);
    EXPECT_EQ(other.storage().data_ptr().get_deleter(), CountingAllocator().raw_deleter());
  }
  EXPECT_EQ(CountingAllocator::in_use(), before);
  arena->leave_here();
}

TEST(GradientArena, leaves_an_allocator_alone_that_the_user_installs_later) {
  const auto arena = arena_of();
  c10::Allocator* const ours = c10::GetCPUAllocator();
  static CountingAllocator later;
  c10::SetCPUAllocator(&later, 3);
  const auto another = arena_of();
  another->serve_here();
  EXPECT_EQ(c10::GetCPUAllocator(), &later);
  EXPECT_FALSE(another->holds(block_sized()));
  EXPECT_TRUE(another->holds(another->make_like(block_sized())));
  another->leave_here();
  c10::SetCPUAllocator(ours, 3);
}

TEST(GradientArena, frees_by_address_from_another_thread_after_it_serves_nobody) {
  auto arena = arena_of();
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  arena->serve_here();
  void* const block = allocator.raw_allocate(kBlock);
  Tensor tensor = block_sized();
  arena->leave_here();
  void* const other = allocator.raw_allocate(kBlock);
  const std::size_t before = CountingAllocator::in_use();
  EXPECT_EQ(arena->figures().in_use, 2U);
  std::jthread([&] {
    allocator.raw_deallocate(block);
    allocator.raw_deallocate(other);
    tensor.reset();
  }).join();
  EXPECT_EQ(arena->figures().in_use, 0U);
  EXPECT_EQ(CountingAllocator::in_use(), before - 1);
}

TEST(GradientArena, has_no_raw_interface_over_an_allocator_without_one) {
  struct Plain final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) override { return inner.allocate(bytes); }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
      default_copy_data(to, from, bytes);
    }
    CountingAllocator inner;
  } plain;
  ArenaAllocator allocator(plain);
  EXPECT_EQ(allocator.raw_deleter(), nullptr);
  EXPECT_EQ(allocator.allocate(kBlock).get_deleter(), CountingAllocator().raw_deleter());
}

TEST(GradientArena, takes_a_tensor_back_after_the_arena_is_gone) {
  auto arena = arena_of();
  arena->serve_here();
  Tensor kept = block_sized();
  arena.reset();
  EXPECT_EQ(kept.fill_(3).sum().item<float>(), 3.0F * kSide * kSide);
  kept = block_sized();  // this thread was left with an arena that is gone
  EXPECT_EQ(CountingAllocator().raw_deleter(), kept.storage().data_ptr().get_deleter());
}

TEST(GradientArena, uses_one_block_for_temporaries_that_follow_each_other) {
  const auto arena = arena_of();
  arena->serve_here();
  for (int i = 0; i < 100; ++i) (void)::torch::ones({kSide, kSide}).add_(1);
  EXPECT_EQ(arena->figures().blocks, 1U);
  arena->leave_here();
}

TEST(GradientArena, is_left_by_a_tensor_that_is_resized) {
  const auto arena = arena_of();
  arena->serve_here();
  Tensor tensor = ::torch::ones({kSide, kSide});
  EXPECT_TRUE(arena->holds(tensor));
  arena->leave_here();
  tensor.resize_({kSide, 2 * kSide});
  EXPECT_FALSE(arena->holds(tensor));
  EXPECT_EQ(tensor[0][0].item<float>(), 1.0F);
  EXPECT_EQ(arena->figures().in_use, 0U);
}

TEST(GradientArena, falls_back_to_the_other_allocator_when_it_is_exhausted) {
  const auto arena = arena_of(2 * kBlock);
  arena->serve_here();
  const Tensor a = block_sized();
  const Tensor b = block_sized();
  const Tensor c = block_sized();
  EXPECT_TRUE(arena->holds(b));
  EXPECT_FALSE(arena->holds(c));
  EXPECT_TRUE(arena->exhausted_for(kBlock));
  EXPECT_EQ(arena->figures().refused, 1U);
  EXPECT_FALSE(arena->make_like(c).defined());
  arena->leave_here();
}

TEST(GradientArena, hands_out_no_block_of_a_failed_step) {
  const auto arena = arena_of();
  arena->serve_here();
  { const Tensor freed_before_the_end = block_sized(); }
  Tensor block = block_sized();
  void* const address = block.data_ptr();
  arena->close();
  block.reset();
  for (int i = 0; i < 3; ++i) EXPECT_NE(block_sized().data_ptr(), address);
  EXPECT_EQ(arena->figures().blocks, 1U);
  EXPECT_FALSE(arena->holds(block_sized()));
  arena->leave_here();
}

TEST(GradientArena, is_off_in_a_forked_child) {
  const auto arena = arena_of();
  arena->serve_here();
  Tensor block = block_sized();
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = !arena->holds(block) && !arena->make_like(block).defined();
    good = good && !arena->holds(block_sized());
    const std::size_t before = CountingAllocator::in_use();
    block.reset();                         // frees nothing
    { const Tensor own = block_sized(); }  // comes from the other allocator and goes there
    ::_exit(good && CountingAllocator::in_use() == before ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(arena->holds(block));
  arena->leave_here();
}

}  // namespace
}  // namespace paceline
