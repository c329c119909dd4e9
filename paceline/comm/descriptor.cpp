// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/descriptor.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "paceline/base/little_endian.h"
#include "paceline/comm/check.h"

namespace paceline {

std::uint64_t hash_of(const Descriptor& descriptor) {
  std::array<std::byte, 24> fixed{};
  const std::span<std::byte> out(fixed);
  store_le(out.subspan<0, 1>(), static_cast<std::uint8_t>(descriptor.what));
  store_le(out.subspan<1, 1>(), static_cast<std::uint8_t>(descriptor.algorithm));
  store_le(out.subspan<2, 1>(), static_cast<std::uint8_t>(descriptor.op));
  store_le(out.subspan<3, 1>(), static_cast<std::uint8_t>(descriptor.dtype));
  store_le(out.subspan<4, 4>(), static_cast<std::uint32_t>(descriptor.root));
  store_le(out.subspan<8, 8>(), descriptor.count);
  store_le(out.subspan<16, 8>(), check_of(std::as_bytes(std::span(descriptor.label))));
  const std::uint64_t hash = check_of(fixed);
  return hash == 0 ? 1 : hash;  // 0 means "not known" on the control channel
}

std::string text_of(const Descriptor& descriptor) {
  std::string text(name_of(descriptor.what));
  if (descriptor.what != Collective::kBarrier) {
    text += fmt::format(" {}[{}]", name_of(descriptor.dtype), descriptor.count);
  }
  if (reduces(descriptor.what)) text += fmt::format(" {}", name_of(descriptor.op));
  if (descriptor.what == Collective::kBroadcast) text += fmt::format(" from {}", descriptor.root);
  text += fmt::format(" by {}", name_of(descriptor.algorithm));
  if (!descriptor.label.empty()) text += fmt::format(" \"{}\"", descriptor.label);
  return text;
}

}  // namespace paceline
