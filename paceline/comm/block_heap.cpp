// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/block_heap.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <unordered_map>
#include <utility>

#include "paceline/base/mutex.h"
#include "paceline/net/fork.h"

namespace paceline {
namespace {

struct BlockSize {
  std::size_t bytes = 0;
  std::size_t made = 0;
  std::vector<std::byte*> free = {};  // with room for all that were made
};

struct HeapState {
  std::shared_ptr<Engine> engine;  // until it is closed
  std::vector<BlockSize> sizes;    // ascending
  std::size_t smallest_refused = std::numeric_limits<std::size_t>::max();
  std::size_t kept = 0;  // blocks in the book
  bool ended = false;    // its owner is gone
  BlockFigures figures = {};

  [[nodiscard]] BlockSize* of(std::size_t bytes) {
    const auto at = std::lower_bound(sizes.begin(), sizes.end(), bytes,
                                     [](const BlockSize& s, std::size_t b) { return s.bytes < b; });
    return at != sizes.end() && at->bytes == bytes ? &*at : nullptr;
  }
};

struct Block {
  std::uint64_t heap = 0;
  std::size_t bytes = 0;
  Region memory = {};
  bool in_use = false;
};

// Blocks outlive their heaps and are freed by address alone, so one book holds all of a process. It
// is never destroyed: memory may come back after main().
class BlockBook {
 public:
  static BlockBook& instance() {
    static BlockBook* const book = [] {
      net::around_fork(before_fork, after_fork, in_child);
      return new BlockBook;
    }();
    return *book;
  }

  std::uint64_t open(std::shared_ptr<Engine> engine, std::vector<std::size_t> bytes);
  void close(std::uint64_t number) noexcept;
  void end(std::uint64_t number) noexcept;
  std::byte* take(std::uint64_t number, std::size_t bytes) noexcept;
  bool give_back(void* block) noexcept;
  bool reaches(std::uint64_t number, const void* block) noexcept;
  bool refuses(std::uint64_t number, std::size_t bytes) noexcept;
  BlockFigures figures(std::uint64_t number) noexcept;

 private:
  // The lock is held over a fork, so that the child sees the book whole.
  static void before_fork() PACELINE_NO_THREAD_SAFETY_ANALYSIS { instance().mutex_.lock(); }
  static void after_fork() PACELINE_NO_THREAD_SAFETY_ANALYSIS { instance().mutex_.unlock(); }
  static void in_child() PACELINE_NO_THREAD_SAFETY_ANALYSIS {
    instance().forked_ = true;
    instance().mutex_.unlock();
  }

  bool grow(std::uint64_t number, HeapState& heap, BlockSize& size) noexcept
      PACELINE_REQUIRES(mutex_);
  void forget_if_empty(std::uint64_t number) PACELINE_REQUIRES(mutex_);

  Mutex mutex_;
  std::unordered_map<std::uint64_t, HeapState> heaps_ PACELINE_GUARDED_BY(mutex_);
  std::unordered_map<const void*, Block> blocks_ PACELINE_GUARDED_BY(mutex_);
  std::uint64_t last_number_ PACELINE_GUARDED_BY(mutex_) = 0;
  bool forked_ PACELINE_GUARDED_BY(mutex_) = false;
};

std::uint64_t BlockBook::open(std::shared_ptr<Engine> engine, std::vector<std::size_t> bytes) {
  std::sort(bytes.begin(), bytes.end());
  bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
  HeapState heap{.engine = std::move(engine), .sizes = {}};
  for (const std::size_t each : bytes) heap.sizes.push_back({.bytes = each});
  const MutexLock lock(mutex_);
  heaps_.emplace(++last_number_, std::move(heap));
  return last_number_;
}

void BlockBook::close(std::uint64_t number) noexcept {
  std::shared_ptr<Engine> engine;  // its end may be anybody's code: not under the lock
  const MutexLock lock(mutex_);
  engine = heaps_.at(number).engine;
  for (auto& [other, heap] : heaps_) {
    if (heap.engine == engine) heap.engine.reset();
  }
}

void BlockBook::end(std::uint64_t number) noexcept {
  std::shared_ptr<Engine> engine;
  const MutexLock lock(mutex_);
  HeapState& heap = heaps_.at(number);
  engine = std::move(heap.engine);
  heap.ended = true;
  if (forked_) return;
  heap.kept -= std::erase_if(
      blocks_, [&](const auto& item) { return item.second.heap == number && !item.second.in_use; });
  forget_if_empty(number);
}

void BlockBook::forget_if_empty(std::uint64_t number) {
  const auto heap = heaps_.find(number);
  if (heap->second.ended && heap->second.kept == 0) heaps_.erase(heap);
}

std::byte* BlockBook::take(std::uint64_t number, std::size_t bytes) noexcept {
  const MutexLock lock(mutex_);
  const auto found = heaps_.find(number);
  if (forked_ || found == heaps_.end() || !found->second.engine) return nullptr;
  HeapState& heap = found->second;
  BlockSize* const size = heap.of(bytes);
  if (size == nullptr) return nullptr;
  if (size->free.empty() && !grow(number, heap, *size)) {
    ++heap.figures.refused;
    return nullptr;
  }
  std::byte* const block = size->free.back();
  size->free.pop_back();
  blocks_.find(block)->second.in_use = true;
  ++heap.figures.in_use;
  return block;
}

bool BlockBook::grow(std::uint64_t number, HeapState& heap, BlockSize& size) noexcept {
  if (size.bytes >= heap.smallest_refused) return false;
  try {
    Region memory = heap.engine->allocate(size.bytes);
    std::byte* const block = memory.data.get();
    size.free.reserve(size.made + 1);
    blocks_.emplace(block, Block{.heap = number, .bytes = size.bytes, .memory = std::move(memory)});
    size.free.push_back(block);
  } catch (const std::exception&) {  // there is no room: the callers have other memory
    heap.smallest_refused = size.bytes;
    return false;
  }
  ++size.made;
  ++heap.kept;
  ++heap.figures.blocks;
  heap.figures.bytes += size.bytes;
  return true;
}

bool BlockBook::give_back(void* block) noexcept {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return false;
  if (forked_) return true;
  const std::uint64_t number = found->second.heap;
  HeapState& heap = heaps_.find(number)->second;
  found->second.in_use = false;
  --heap.figures.in_use;
  if (heap.ended) {
    blocks_.erase(found);
    --heap.kept;
    forget_if_empty(number);
  } else if (heap.engine) {
    heap.of(found->second.bytes)->free.push_back(static_cast<std::byte*>(block));
  }
  return true;
}

bool BlockBook::reaches(std::uint64_t number, const void* block) noexcept {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(block);
  if (forked_ || found == blocks_.end() || !found->second.in_use) return false;
  const auto& engine = heaps_.find(found->second.heap)->second.engine;
  return engine && engine == heaps_.find(number)->second.engine;
}

bool BlockBook::refuses(std::uint64_t number, std::size_t bytes) noexcept {
  const MutexLock lock(mutex_);
  return bytes >= heaps_.find(number)->second.smallest_refused;
}

BlockFigures BlockBook::figures(std::uint64_t number) noexcept {
  const MutexLock lock(mutex_);
  return heaps_.find(number)->second.figures;
}

// Numbers, not pointers: a thread that a failed backward left with a heap may outlive the heap.
thread_local std::uint64_t serving = 0;
thread_local std::uint64_t served_before = 0;

}  // namespace

BlockHeap::BlockHeap(std::shared_ptr<Engine> engine, std::vector<std::size_t> sizes)
    : number_(BlockBook::instance().open(std::move(engine), std::move(sizes))) {}

BlockHeap::~BlockHeap() { BlockBook::instance().end(number_); }

std::byte* BlockHeap::take(std::size_t bytes) noexcept {
  return BlockBook::instance().take(number_, bytes);
}

bool BlockHeap::refuses(std::size_t bytes) const noexcept {
  return BlockBook::instance().refuses(number_, bytes);
}

bool BlockHeap::reaches(const void* block) const noexcept {
  return BlockBook::instance().reaches(number_, block);
}

void BlockHeap::close() noexcept { BlockBook::instance().close(number_); }

BlockFigures BlockHeap::figures() const noexcept { return BlockBook::instance().figures(number_); }

void BlockHeap::serve_here() noexcept {
  if (serving != number_) served_before = std::exchange(serving, number_);
}

void BlockHeap::leave_here() noexcept {
  if (serving == number_) serving = std::exchange(served_before, 0);
}

std::byte* BlockHeap::take_here(std::size_t bytes) noexcept {
  return serving == 0 ? nullptr : BlockBook::instance().take(serving, bytes);
}

bool BlockHeap::give_back(void* block) noexcept { return BlockBook::instance().give_back(block); }

}  // namespace paceline
