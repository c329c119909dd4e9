// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/work.h"

#include <utility>

#include "paceline/comm/context.h"

namespace paceline {

Work::Work(std::shared_ptr<Context> context, std::shared_ptr<CallState> call) noexcept
    : context_(std::move(context)), call_(std::move(call)) {}

void Work::wait() {
  if (call_) context_->wait(*call_);
}

bool Work::done() const { return !call_ || call_->finished.load(std::memory_order_acquire); }

}  // namespace paceline
