// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the executor meets on a link; the context turns it into a CommError. Private to comm.

#include <cstdint>
#include <stdexcept>
#include <string>

namespace paceline {

/// The link to `peer` is gone.
struct PeerLost : std::runtime_error {
  PeerLost(int who, const std::string& how) : std::runtime_error(how), peer(who) {}
  int peer;
};

/// A frame of call `sequence` from `peer` belongs to another call than ours of that number.
struct DescriptorDiffers : std::runtime_error {
  DescriptorDiffers(int who, std::uint64_t call)
      : std::runtime_error("descriptors differ"), peer(who), sequence(call) {}
  int peer;
  std::uint64_t sequence;
};

/// `peer` sent what no rank of this job may send.
struct ProtocolBroken : std::runtime_error {
  ProtocolBroken(int who, const std::string& how) : std::runtime_error(how), peer(who) {}
  int peer;
};

}  // namespace paceline
