// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How ranks that share memory tell each other where the memory of a call lies, and when it may be
/// touched.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "paceline/comm/piece_list.h"
#include "paceline/link/windows.h"
#include "paceline/plan/schedule.h"

namespace paceline {

struct CallState;

/// Elements [begin, end) of a window, from a byte of its owner's segment on.
struct WindowPart {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
};

/// Another rank's memory in one call, as this process maps it. Borrows the owner's board.
class PeerWindow {
 public:
  PeerWindow() = default;
  [[nodiscard]] bool known() const noexcept { return segment_ != nullptr; }
  /// Contiguous memory from `element` of the peer's kIn or kOut on.
  [[nodiscard]] Run locate(plan::Memory memory, std::uint64_t element) const;

 private:
  friend class WindowBoard;
  std::byte* segment_ = nullptr;
  std::span<const WindowPart> in_, out_;
  std::uint64_t stage_ = 0;  // offset
  plan::StageMap stage_map_;
  bool staged_ = false;
  std::size_t element_bytes_ = 1;
};

/// A rank's board has a slot for each of its last kSlots calls. A slot is written by its rank before
/// the first post of the call, read by peers after that post, and used again once all peers have
/// said that they have ended that call.
///
/// Threads  One at a time, the driver.
class WindowBoard {
 public:
  /// Stages of link::Windows: two that schedules post in, and how many calls have ended.
  static constexpr int kEnded = 2;
  /// Bytes of a stage that fits into a slot: it needs no memory of its own.
  static constexpr std::size_t kInlineStage = std::size_t{8} << 10;

  WindowBoard(int rank, int world, link::Windows& windows);
  WindowBoard(const WindowBoard&) = delete;
  WindowBoard& operator=(const WindowBoard&) = delete;

  [[nodiscard]] static int stage_of(const plan::Step& step) noexcept { return step.flag % 2; }
  /// What a post of `step` in call `sequence` raises its word to.
  [[nodiscard]] static std::uint64_t value_of(const plan::Step& step,
                                              std::uint64_t sequence) noexcept {
    return ((sequence + 1) << 16U) | (static_cast<std::uint64_t>(step.flag) / 2 + 1);
  }

  /// Gives `call` its slot and its stage, if the slot is free: `oldest` is the first call in flight
  /// here.
  /// @return whether it was.
  /// Errors  link::OutOfWindowMemory.
  [[nodiscard]] bool open(CallState& call, std::uint64_t oldest);
  /// Whether the slot is still due to an earlier call in flight here. Slots are taken in sequence
  /// order: a later call that came first would keep the earlier one out for ever.
  [[nodiscard]] static bool is_ahead(const CallState& call, std::uint64_t oldest) noexcept;
  /// The ended call whose peers open() waits for, if the call is not ahead.
  [[nodiscard]] std::uint64_t blocked_by(const CallState& call) const;
  /// Takes the stage of a call that has ended well back.
  void close(CallState& call);

  /// Finds `peer`'s memory in `call`, which `peer` has posted in.
  /// Errors  DescriptorDiffers if it has posted in another call.
  void look_up(CallState& call, int peer) const;

  [[nodiscard]] link::Windows& windows() const noexcept { return windows_; }
  void post(int stage, std::uint64_t value) { windows_.post(stage, value); }
  /// Tells the peers that this rank has ended all calls before `sequence`.
  void post_ended(std::uint64_t sequence);
  [[nodiscard]] std::uint64_t posted(int peer, int stage) const {
    return windows_.posted(peer, stage);
  }

 private:
  static constexpr std::size_t kSlots = 32;
  struct Slot;
  struct Held {
    bool used = false;
    std::uint64_t sequence = 0;
    std::shared_ptr<std::byte> parts = {};  // that did not fit into the slot
    std::shared_ptr<std::byte> stage = {};  // that outlives its call
  };
  struct Block {
    std::shared_ptr<std::byte> data;
    std::size_t bytes = 0;
  };

  [[nodiscard]] Slot& slot_of(int rank, std::uint64_t sequence) const;
  [[nodiscard]] std::uint64_t offset_of(const std::byte* data) const;
  [[nodiscard]] bool have_all_ended(std::uint64_t sequence);
  void write_parts(Slot& slot, Held& held, const CallState& call);
  void give_stage(Slot& slot, Held& held, CallState& call);
  [[nodiscard]] Block take_block(std::size_t bytes);

  int rank_;
  int world_;
  link::Windows& windows_;
  std::array<Held, kSlots> held_;
  std::vector<Block> blocks_;  // stages that are free
  std::uint64_t ended_ = 0;
  std::uint64_t all_ended_ = 0;  // calls that all peers had ended when last looked at
};

}  // namespace paceline
