// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/frame.h"

#include <fmt/format.h>

#include "paceline/base/little_endian.h"
#include "paceline/comm/check.h"

namespace paceline {
namespace {

constexpr std::uint32_t kMagic = 0x4c434150;  // "PACL"

// Where each field lies: the layout is the wire format.
template <typename Bytes>
struct Layout {
  explicit Layout(Bytes bytes) : all(bytes) {}
  Bytes all;
  auto magic() const { return all.template subspan<0, 4>(); }
  auto version() const { return all.template subspan<4, 2>(); }
  auto type() const { return all.template subspan<6, 1>(); }
  auto wire() const { return all.template subspan<7, 1>(); }
  auto communicator() const { return all.template subspan<8, 4>(); }
  auto generation() const { return all.template subspan<12, 4>(); }
  auto sequence() const { return all.template subspan<16, 8>(); }
  auto message() const { return all.template subspan<24, 4>(); }
  auto length() const { return all.template subspan<28, 4>(); }
  auto offset() const { return all.template subspan<32, 8>(); }
  auto descriptor() const { return all.template subspan<40, 8>(); }
  auto check() const { return all.template subspan<48, 8>(); }
  auto checked() const { return all.template subspan<0, 48>(); }
};
using Writable = Layout<std::span<std::byte, kFrameHeaderBytes>>;
using Readable = Layout<std::span<const std::byte, kFrameHeaderBytes>>;

std::string fault_of(const FrameHeader& header, std::uint8_t type, std::uint8_t wire) {
  if (type != 1 && type != 2) return fmt::format("unknown frame type {}", type);
  if (wire > 1) return fmt::format("unknown wire form {}", wire);
  if (header.length_bytes > kMaxFramePayload) {
    return fmt::format("a payload of {} bytes, more than {}", header.length_bytes,
                       kMaxFramePayload);
  }
  if (header.type == FrameType::kFlag && header.length_bytes != 0) return "a flag with a payload";
  return {};
}

}  // namespace

FrameBytes encode(const FrameHeader& header) {
  FrameBytes bytes{};
  const Writable out{std::span(bytes)};
  store_le(out.magic(), kMagic);
  store_le(out.version(), kFrameVersion);
  store_le(out.type(), static_cast<std::uint8_t>(header.type));
  store_le(out.wire(), static_cast<std::uint8_t>(header.wire));
  store_le(out.communicator(), header.communicator);
  store_le(out.generation(), header.generation);
  store_le(out.sequence(), header.sequence);
  store_le(out.message(), header.message);
  store_le(out.length(), header.length_bytes);
  store_le(out.offset(), header.offset);
  store_le(out.descriptor(), header.descriptor);
  store_le(out.check(), check_of(out.checked()));
  return bytes;
}

DecodedFrame decode(const FrameBytes& bytes) {
  const Readable in{std::span(bytes)};
  if (load_le<std::uint32_t>(in.magic()) != kMagic) return {{}, "bytes that are no frame"};
  const auto version = load_le<std::uint16_t>(in.version());
  if (version != kFrameVersion) {
    return {{}, fmt::format("frame version {}, expected {}", version, kFrameVersion)};
  }
  if (load_le<std::uint64_t>(in.check()) != check_of(in.checked())) {
    return {{}, "a damaged frame header"};
  }
  const auto type = load_le<std::uint8_t>(in.type());
  const auto wire = load_le<std::uint8_t>(in.wire());
  const FrameHeader header{.type = static_cast<FrameType>(type),
                           .wire = static_cast<Form>(wire),
                           .communicator = load_le<std::uint32_t>(in.communicator()),
                           .generation = load_le<std::uint32_t>(in.generation()),
                           .sequence = load_le<std::uint64_t>(in.sequence()),
                           .message = load_le<std::uint32_t>(in.message()),
                           .length_bytes = load_le<std::uint32_t>(in.length()),
                           .offset = load_le<std::uint64_t>(in.offset()),
                           .descriptor = load_le<std::uint64_t>(in.descriptor())};
  return {header, fault_of(header, type, wire)};
}

}  // namespace paceline
