// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Links of shared memory that tell a test when they are looked at.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "paceline/link/link.h"

namespace paceline::test {

/// Links of shared memory in a world of two; `before_recv` runs before each look at what has come
/// from `peer`.
class WatchedFabric final : public link::Fabric {
 public:
  WatchedFabric(std::unique_ptr<link::Fabric> fabric,
                int peer,
                std::function<void(link::Windows&)> before_recv)
      : fabric_(std::move(fabric)),
        link_(fabric_->to(peer), [this, before = std::move(before_recv)] { before(*windows()); }) {}
  link::Link& to(int) override { return link_; }
  void wait(std::span<const link::Interest> interests, Deadline deadline) override {
    if (before_wait) before_wait();
    fabric_->wait(interests, deadline);
  }
  void wake() noexcept override { fabric_->wake(); }
  void close() noexcept override { fabric_->close(); }
  [[nodiscard]] bool worth_spinning() const noexcept override { return spins; }
  link::Windows* windows() noexcept override { return fabric_->windows(); }
  [[nodiscard]] const char* name() const noexcept override { return fabric_->name(); }

  std::function<void()> before_wait;
  bool spins = false;

 private:
  class WatchedLink final : public link::Link {
   public:
    WatchedLink(link::Link& link, std::function<void()> before_recv)
        : link_(link), before_recv_(std::move(before_recv)) {}
    std::size_t try_send(std::span<const std::span<const std::byte>> parts) override {
      return link_.try_send(parts);
    }
    std::size_t try_recv(std::span<std::byte> into) override {
      before_recv_();
      return link_.try_recv(into);
    }
    void close() noexcept override { link_.close(); }

   private:
    link::Link& link_;
    std::function<void()> before_recv_;
  };

  std::unique_ptr<link::Fabric> fabric_;
  WatchedLink link_;
};

}  // namespace paceline::test
