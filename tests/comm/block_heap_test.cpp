// SPDX-License-Identifier: Apache-2.0
// Blocks: who gets them, who gets them next, and when nobody does.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/comm/block_heap.h"

namespace paceline {
namespace {

constexpr std::size_t kSmall = 1024;
constexpr std::size_t kLarge = 4096;

// Ordinary memory up to a limit, and a count of what has not come back.
class CountingEngine final : public Engine {
 public:
  explicit CountingEngine(std::size_t limit) : left_(limit) {}
  Work start(const Call&, Buffer, Buffer) override { return {}; }
  void advance() override {}
  Region allocate(std::size_t bytes) override {
    ++asked;
    if (bytes > left_) throw UsageError("no room");
    left_ -= bytes;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
    ++*regions;
    return {{data,
             [count = regions](std::byte* p) {
               std::free(p);
               --*count;
             }},
            bytes};
  }
  [[nodiscard]] bool shares_memory() const noexcept override { return true; }
  void abort(const std::string&) override {}
  void abandon(const std::string&) override {}

  std::shared_ptr<int> regions = std::make_shared<int>(0);
  int asked = 0;

 private:
  std::size_t left_;
};

std::shared_ptr<CountingEngine> engine_of(std::size_t limit = 1 << 20) {
  return std::make_shared<CountingEngine>(limit);
}

TEST(BlockHeap, hands_out_its_sizes_only_and_the_last_that_came_back_first) {
  BlockHeap heap(engine_of(), {kLarge, kSmall, kLarge});
  EXPECT_EQ(heap.take(kSmall + 1), nullptr);
  EXPECT_EQ(heap.take(0), nullptr);
  std::byte* const a = heap.take(kLarge);
  std::byte* const b = heap.take(kLarge);
  ASSERT_NE(a, nullptr);
  EXPECT_NE(a, b);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 64, 0U);
  EXPECT_TRUE(BlockHeap::give_back(b));
  EXPECT_TRUE(BlockHeap::give_back(a));
  EXPECT_EQ(heap.take(kLarge), a);
  EXPECT_EQ(heap.take(kLarge), b);
  EXPECT_NE(heap.take(kSmall), nullptr);
  EXPECT_EQ(heap.figures().blocks, 3U);
  EXPECT_EQ(heap.figures().bytes, 2 * kLarge + kSmall);
  EXPECT_EQ(heap.figures().in_use, 3U);
}

TEST(BlockHeap, grows_by_need_and_says_when_there_is_no_more) {
  const auto engine = engine_of(3 * kSmall);
  BlockHeap heap(engine, {kSmall, kLarge});
  EXPECT_EQ(*engine->regions, 0);
  EXPECT_EQ(heap.take(kLarge), nullptr);
  EXPECT_TRUE(heap.refuses(kLarge));
  EXPECT_EQ(heap.take(kLarge), nullptr);
  EXPECT_EQ(engine->asked, 1);  // refused once, not asked for again
  for (int i = 0; i < 3; ++i) EXPECT_NE(heap.take(kSmall), nullptr);
  EXPECT_FALSE(heap.refuses(kSmall));
  EXPECT_EQ(heap.take(kSmall), nullptr);
  EXPECT_EQ(heap.figures().refused, 3U);
  EXPECT_EQ(heap.figures().in_use, 3U);
}

TEST(BlockHeap, knows_its_blocks_by_address_and_no_others) {
  const auto engine = engine_of();
  BlockHeap heap(engine, {kSmall});
  BlockHeap same_engine(engine, {kSmall});
  BlockHeap other(engine_of(), {kSmall});
  std::byte* const block = heap.take(kSmall);
  EXPECT_TRUE(heap.reaches(block));
  EXPECT_TRUE(same_engine.reaches(block));
  EXPECT_FALSE(other.reaches(block));
  EXPECT_FALSE(heap.reaches(block + 1));
  EXPECT_FALSE(BlockHeap::give_back(block + 1));
  int on_stack = 0;
  EXPECT_FALSE(BlockHeap::give_back(&on_stack));
  EXPECT_TRUE(BlockHeap::give_back(block));
  EXPECT_FALSE(heap.reaches(block));
}

TEST(BlockHeap, never_hands_out_again_what_a_failed_step_had) {
  const auto engine = engine_of();
  BlockHeap heap(engine, {kSmall});
  BlockHeap same_engine(engine, {kSmall});
  std::byte* const block = heap.take(kSmall);
  heap.close();
  EXPECT_FALSE(heap.reaches(block));
  EXPECT_TRUE(BlockHeap::give_back(block));
  EXPECT_EQ(heap.take(kSmall), nullptr);
  EXPECT_EQ(same_engine.take(kSmall), nullptr);
  EXPECT_EQ(heap.figures().refused, 0U);
  EXPECT_EQ(*engine->regions, 1);  // nor is its memory given away while the heap lives
}

TEST(BlockHeap, takes_blocks_back_after_its_owner_is_gone) {
  const auto engine = engine_of();
  auto heap = std::make_unique<BlockHeap>(engine, std::vector{kSmall});
  std::byte* const kept = heap->take(kSmall);
  EXPECT_TRUE(BlockHeap::give_back(heap->take(kSmall)));
  EXPECT_EQ(*engine->regions, 2);
  heap.reset();
  EXPECT_EQ(*engine->regions, 1);
  EXPECT_EQ(engine.use_count(), 1);  // a block does not keep the engine
  kept[0] = kept[kSmall - 1] = std::byte{1};
  EXPECT_TRUE(BlockHeap::give_back(kept));
  EXPECT_EQ(*engine->regions, 0);
}

TEST(BlockHeap, serves_the_thread_that_asked_until_it_leaves) {
  BlockHeap outer(engine_of(), {kSmall});
  EXPECT_EQ(BlockHeap::take_here(kSmall), nullptr);
  outer.serve_here();
  std::jthread([] { EXPECT_EQ(BlockHeap::take_here(kSmall), nullptr); }).join();
  {
    BlockHeap inner(engine_of(), {kLarge});
    inner.serve_here();
    EXPECT_EQ(BlockHeap::take_here(kSmall), nullptr);
    std::byte* const block = BlockHeap::take_here(kLarge);
    EXPECT_TRUE(inner.reaches(block));
    EXPECT_TRUE(BlockHeap::give_back(block));
    inner.leave_here();
    EXPECT_TRUE(outer.reaches(BlockHeap::take_here(kSmall)));
    inner.serve_here();  // as a backward that failed leaves it
  }
  EXPECT_EQ(BlockHeap::take_here(kLarge), nullptr);
  outer.leave_here();  // is not the one that serves
  outer.serve_here();
  outer.leave_here();
  EXPECT_EQ(BlockHeap::take_here(kSmall), nullptr);
}

TEST(BlockHeap, takes_blocks_back_from_any_thread) {
  const auto engine = engine_of(64 << 20);
  {
    BlockHeap heap(engine, {kSmall, kLarge});
    std::latch start(4);
    std::vector<std::vector<std::byte*>> passed(4);
    std::vector<std::jthread> threads;
    std::latch taken(4);
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        for (int i = 0; i < 200; ++i) {
          std::byte* const block = heap.take(i % 2 == 0 ? kSmall : kLarge);
          ASSERT_NE(block, nullptr);
          block[0] = static_cast<std::byte>(t);
          if (i % 4 < 2) {
            passed[t].push_back(block);
          } else {
            EXPECT_EQ(block[0], static_cast<std::byte>(t));  // nobody else has it
            EXPECT_TRUE(BlockHeap::give_back(block));
          }
        }
        taken.arrive_and_wait();
        for (std::byte* block : passed[(t + 1) % 4]) EXPECT_TRUE(BlockHeap::give_back(block));
      });
    }
    threads.clear();
    EXPECT_EQ(heap.figures().in_use, 0U);
    EXPECT_EQ(heap.figures().blocks, static_cast<std::uint64_t>(*engine->regions));
    EXPECT_LE(heap.figures().blocks, 404U);
  }
  EXPECT_EQ(*engine->regions, 0);
}

TEST(BlockHeap, is_off_and_frees_nothing_in_a_forked_child) {
  const auto engine = engine_of();
  auto heap = std::make_unique<BlockHeap>(engine, std::vector{kSmall});
  std::byte* const used = heap->take(kSmall);
  EXPECT_TRUE(BlockHeap::give_back(heap->take(kSmall)));
  heap->serve_here();
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = heap->take(kSmall) == nullptr && BlockHeap::take_here(kSmall) == nullptr;
    good = good && !heap->reaches(used) && BlockHeap::give_back(used);
    heap.reset();
    ::_exit(good && *engine->regions == 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(heap->reaches(used));
  EXPECT_NE(heap->take(kSmall), nullptr);
  heap->leave_here();
}

}  // namespace
}  // namespace paceline
