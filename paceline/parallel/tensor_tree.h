// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The tensors inside a value: what a module takes and returns, of whatever type.
///
/// A tree of tensors is a tensor, or a tuple, pair, array, optional, range or map of trees, or a
/// struct that names its fields. Anything else holds no tensor. A struct names them by a function
/// beside it, in its namespace, that takes a mutable reference and returns references:
///
///   struct Batch { at::Tensor images; std::vector<at::Tensor> boxes; int width; };
///   auto tensor_fields(Batch& batch) { return std::tie(batch.images, batch.boxes); }
///
/// Fields that are left out, such as `width`, go along as they are.

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace paceline {
namespace detail {

template <typename T>
concept TensorStruct = requires(T& value) {
  tensor_fields(value);
};

template <typename T>
concept TensorRange = requires(T& value) {
  value.begin();
  value.end();
  requires !std::convertible_to<T, std::string>;
  requires !std::same_as<std::remove_cvref_t<decltype(*value.begin())>, T>;  // a path, for one
};

// A field of a const struct is const, though tensor_fields() returns it mutable.
template <typename Owner, typename Field>
auto& with_constness_of(Field& field) {
  if constexpr (std::is_const_v<std::remove_reference_t<Owner>>) {
    return std::as_const(field);
  } else {
    return field;
  }
}

}  // namespace detail

/// Whether T is a tree of tensors, or a number, enum or text. A struct that holds none says so by
/// tensor_fields() that returns std::tie().
template <typename T>
[[nodiscard]] consteval bool is_tensor_tree() {
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::derived_from<Value, at::TensorBase> || detail::TensorStruct<Value>) {
    return true;
  } else if constexpr (requires { std::tuple_size<Value>::value; }) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (is_tensor_tree<std::tuple_element_t<I, Value>>() && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<Value>>());
  } else if constexpr (requires(Value & value) {
                         value.has_value();
                         *value;
                       }) {
    return is_tensor_tree<decltype(*std::declval<Value&>())>();
  } else if constexpr (detail::TensorRange<Value>) {
    return is_tensor_tree<decltype(*std::declval<Value&>().begin())>();
  } else {
    return std::is_arithmetic_v<Value> || std::is_enum_v<Value> ||
           std::convertible_to<Value, std::string>;
  }
}

/// Calls `visit` on each tensor in the tree `value`, always in the same order: that of the fields
/// or elements. The tensors are mutable if `value` is.
template <typename T, typename F>
void for_each_tensor(T&& value, F&& visit) {
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::derived_from<Value, at::TensorBase>) {
    visit(value);
  } else if constexpr (detail::TensorStruct<Value>) {
    std::apply(
        [&](auto&... field) { (for_each_tensor(detail::with_constness_of<T>(field), visit), ...); },
        tensor_fields(const_cast<Value&>(value)));  // NOLINT: given back const above
  } else if constexpr (requires { std::tuple_size<Value>::value; }) {
    std::apply([&](auto&... part) { (for_each_tensor(part, visit), ...); }, value);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) for_each_tensor(*value, visit);
  } else if constexpr (detail::TensorRange<Value>) {
    for (auto&& part : value) for_each_tensor(part, visit);
  }
}

/// The tensors of a tree, in the order of for_each_tensor().
template <typename T>
[[nodiscard]] std::vector<at::Tensor> tensors_of(const T& value) {
  std::vector<at::Tensor> tensors;
  for_each_tensor(value, [&](const at::TensorBase& tensor) { tensors.emplace_back(tensor); });
  return tensors;
}

/// Puts `tensors`, as many as the tree has, in the place of its own, in the same order. A view of
/// tensors that are somebody else's, such as a span, would change them there: pass a container.
template <typename T>
void replace_tensors(T& value, std::span<const at::Tensor> tensors) {
  std::size_t next = 0;
  for_each_tensor(value, [&](auto& tensor) { tensor = tensors[next++]; });
}

}  // namespace paceline
