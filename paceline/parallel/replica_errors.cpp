// SPDX-License-Identifier: Apache-2.0
#include "paceline/parallel/replica_errors.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include <c10/util/Exception.h>

#include "paceline/base/error.h"

namespace paceline {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

// Call while `error` is being handled: it gets nested.
template <typename Standard>
[[noreturn]] void throw_as(const std::string& text) {
  std::throw_with_nested(Standard(text));
}

// Most derived first.
template <typename... Standard>
[[noreturn]] void throw_as_nearest(const std::exception& error, const std::string& text) {
  ((dynamic_cast<const Standard*>(&error) != nullptr ? throw_as<Standard>(text) : void()), ...);
  throw_as<std::runtime_error>(text);
}

[[noreturn]] void rethrow_with(const std::exception_ptr& error,
                               const std::string& where,
                               const std::string& others) {
  const std::string text = where + ": " + text_of(error) + others;
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& e) {
    e.add_context(where + others);
    throw;
  } catch (const UsageError&) {
    throw UsageError(text);
  } catch (const CommError& e) {
    throw CommError(e.code(), e.rank(), e.peer(), text);
  } catch (const std::exception& e) {
    throw_as_nearest<std::out_of_range, std::invalid_argument, std::domain_error, std::length_error,
                     std::logic_error, std::range_error, std::overflow_error, std::underflow_error>(
        e, text);
  } catch (...) {
    throw_as<std::runtime_error>(text);
  }
}

}  // namespace

void rethrow_first(const std::vector<std::exception_ptr>& errors,
                   const std::vector<c10::Device>& devices,
                   const std::string& what) {
  const auto first = std::find_if(errors.begin(), errors.end(),
                                  [](const auto& error) { return error != nullptr; });
  if (first == errors.end()) return;
  const auto place_of = [&](std::size_t device) {
    return "devices[" + std::to_string(device) + "] (" + devices[device].str() + ")";
  };
  const auto device = static_cast<std::size_t>(first - errors.begin());
  std::string others;
  for (std::size_t other = device + 1; other < errors.size(); ++other) {
    if (errors[other]) others += "; also " + place_of(other) + ": " + text_of(errors[other]);
  }
  rethrow_with(*first, "DataParallel: " + what + " on " + place_of(device), others);
}

}  // namespace paceline
