// SPDX-License-Identifier: Apache-2.0
#include "apps/torch_program.h"

#include <fmt/format.h>

#include <stdexcept>
#include <system_error>

#include "apps/compare/process_count.h"

namespace paceline::apps {

std::filesystem::path torch_program(std::string_view name, std::string_view command) {
  std::filesystem::path program = this_program().parent_path() / name;
  std::error_code ignored;
  if (std::filesystem::exists(program, ignored)) return program;
  throw std::runtime_error(fmt::format(
      "`{}` needs LibTorch, and this paceline was built without it: there is no '{}'. Build with "
      "-DPACELINE_TORCH=ON",
      command, program.string()));
}

}  // namespace paceline::apps
