// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The header of every frame, the same on every link: 56 bytes, little-endian, checked.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "paceline/base/types.h"

namespace paceline {

enum class FrameType : std::uint8_t {
  kData = 1,  ///< payload of message `message`
  kFlag = 2   ///< no payload: the sender has posted flag `message`
};

/// Fields of a header. A frame is tagged by communicator, generation, sequence, message and offset,
/// so that several collectives, sockets, splits and restarts can share links.
struct FrameHeader {
  FrameType type = FrameType::kData;
  Form wire = Form::kT;
  std::uint32_t communicator = 0;
  std::uint32_t generation = 0;    ///< of the job
  std::uint64_t sequence = 0;      ///< of the call
  std::uint32_t message = 0;       ///< number of the message to this peer within the call; or flag
  std::uint32_t length_bytes = 0;  ///< of the payload that follows
  std::uint64_t offset = 0;        ///< first element
  std::uint64_t descriptor = 0;    ///< hash of the call's descriptor

  bool operator==(const FrameHeader&) const = default;
};

inline constexpr std::size_t kFrameHeaderBytes = 56;
inline constexpr std::uint16_t kFrameVersion = 1;
/// Longest payload of one frame that a receiver accepts.
inline constexpr std::uint32_t kMaxFramePayload = 64U << 20;

using FrameBytes = std::array<std::byte, kFrameHeaderBytes>;

[[nodiscard]] FrameBytes encode(const FrameHeader& header);

/// What came over the wire: a header, or why it is none.
struct DecodedFrame {
  FrameHeader header;
  std::string error;  ///< empty if the header is good
};
[[nodiscard]] DecodedFrame decode(const FrameBytes& bytes);

}  // namespace paceline
