// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What several replicas have thrown, as one exception.

#include <exception>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace paceline {

/// Throws the first of `errors`, by device, with its device and the text of the others; returns if
/// all are null. c10::Error and its kinds, UsageError and CommError keep their type, other
/// exceptions the nearest standard one, with the original nested in it.
void rethrow_first(const std::vector<std::exception_ptr>& errors,
                   const std::vector<c10::Device>& devices,
                   const std::string& what);

}  // namespace paceline
