// SPDX-License-Identifier: Apache-2.0
#include "apps/launcher/lines.h"

#include <utility>

namespace paceline::apps {

void Lines::feed(std::string_view bytes) {
  for (const char c : bytes) put(c);
}

void Lines::put(char c) {
  if (std::exchange(carriage_, false) && c != '\n') replaced_ = std::exchange(pending_, {});
  if (c == '\n') {
    end_line();
  } else if (c == '\r') {
    carriage_ = true;
  } else {
    pending_.push_back(c);
    if (pending_.size() >= kLongest) end_line();
  }
}

void Lines::end_line() {
  replaced_.clear();
  sink_(std::exchange(pending_, {}));
}

void Lines::finish() {
  carriage_ = false;
  if (pending_.empty()) pending_ = std::move(replaced_);
  if (!pending_.empty()) end_line();
}

}  // namespace paceline::apps
