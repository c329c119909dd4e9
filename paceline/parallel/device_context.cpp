// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/device_context.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace paceline {

int count_of_devices(c10::DeviceType type) {
  if (type == c10::kCPU) return 1;
  return c10::impl::hasDeviceGuardImpl(type) ? c10::impl::VirtualGuardImpl(type).deviceCount() : 0;
}

std::vector<c10::Stream> current_streams(const std::vector<c10::Device>& devices) {
  std::vector<c10::Stream> streams;
  for (const c10::Device& device : devices) {
    if (device.is_cpu()) continue;
    streams.push_back(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  return streams;
}

StreamScope::StreamScope(const std::vector<c10::Stream>& streams, const c10::Device& device) {
  if (streams.empty()) return;
  streams_.emplace(streams);
  device_.emplace(device);
}

}  // namespace paceline
