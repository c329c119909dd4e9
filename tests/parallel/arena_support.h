// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the arena's tests share: an engine with a limit, and whose memory a tensor lies in.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "paceline/base/error.h"
#include "paceline/comm/block_heap.h"
#include "paceline/parallel/gradient_arena.h"

namespace paceline::tests {

constexpr std::int64_t kSide = 128;  // [kSide, kSide] floats are the smallest block
constexpr std::size_t kBlock = 64 << 10;

/// Ordinary memory, as much as `limit`.
class LimitedEngine final : public Engine {
 public:
  explicit LimitedEngine(std::size_t limit) : left_(limit) {}
  Work start(const Call&, Buffer, Buffer) override { return {}; }
  void advance() override {}
  Region allocate(std::size_t bytes) override {
    if (bytes > left_) throw UsageError("no room");
    left_ -= bytes;
    return {{static_cast<std::byte*>(std::aligned_alloc(64, bytes)), [](auto* p) { std::free(p); }},
            bytes};
  }
  [[nodiscard]] bool shares_memory() const noexcept override { return true; }
  void abort(const std::string&) override {}
  void abandon(const std::string&) override {}

 private:
  std::size_t left_;
};

inline std::vector<NamedTensor> one_parameter() {
  return {{"weight", ::torch::zeros({kSide, kSide})}};
}

inline std::unique_ptr<GradientArena> arena_of(std::size_t limit = 64 * kBlock) {
  return std::make_unique<GradientArena>(std::make_shared<LimitedEngine>(limit), one_parameter());
}

inline ::torch::Tensor block_sized() { return ::torch::empty({kSide, kSide}); }

/// The allocator of this program's "user", installed before anything of ours; counts.
struct CountingAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override;
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static std::size_t in_use();
};

}  // namespace paceline::tests
