// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What TORCH_MODULE makes, taken as the pointer that it holds.

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace paceline {

/// A holder of an Impl, such as torch::nn::Linear is of torch::nn::LinearImpl.
template <typename Holder, typename Impl = typename Holder::ContainedType>
concept ModuleHolderOf = requires(const Holder& holder) {
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<Impl>>;
};

/// The module of a holder; null if it holds none, where ptr() would throw.
template <ModuleHolderOf Holder>
[[nodiscard]] auto module_of(const Holder& holder) -> std::remove_cvref_t<decltype(holder.ptr())> {
  if constexpr (requires { holder.is_empty(); }) {
    if (holder.is_empty()) return nullptr;
  }
  return holder.ptr();
}

template <typename Impl>
[[nodiscard]] std::shared_ptr<Impl> module_of(std::shared_ptr<Impl> module) {
  return module;
}

}  // namespace paceline
