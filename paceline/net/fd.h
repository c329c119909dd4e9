// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// An owned file descriptor. A raw descriptor leaves net/ only to be inherited by a child.

#include <utility>

namespace paceline::net {

class Fd {
 public:
  Fd() = default;
  /// Takes ownership of `raw`; -1 is "none".
  explicit Fd(int raw) noexcept : raw_(raw) {}
  Fd(Fd&& other) noexcept : raw_(std::exchange(other.raw_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      raw_ = std::exchange(other.raw_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }

  [[nodiscard]] int raw() const noexcept { return raw_; }
  [[nodiscard]] explicit operator bool() const noexcept { return raw_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(raw_, -1); }
  /// Closes it, if any.
  void reset() noexcept;

 private:
  int raw_ = -1;
};

}  // namespace paceline::net
