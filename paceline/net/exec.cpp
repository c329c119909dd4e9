// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/exec.h"

#include <fmt/format.h>
#include <unistd.h>

#include "paceline/net/system_error.h"

namespace paceline::net {

void become(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> texts{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    texts.push_back(const_cast<char*>(argument.c_str()));
  }
  texts.push_back(nullptr);
  ::execv(program.c_str(), texts.data());
  throw_errno(fmt::format("starting '{}'", program));
}

}  // namespace paceline::net
