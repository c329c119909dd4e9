// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The simulator's verdict on a schedule that does not work.

#include <stdexcept>

namespace paceline::sim {

/// A schedule breaks a rule of paceline/plan/schedule.h: ranks that wait for each other for ever,
/// messages that do not match, memory touched outside its range or its call, messages left over.
class BrokenRule : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace paceline::sim
