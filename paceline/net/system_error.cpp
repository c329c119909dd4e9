// SPDX-License-Identifier: Apache-2.0
#include "paceline/net/system_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace paceline::net {
namespace {

std::string with_advice(const std::string& text, std::string_view advice) {
  return advice.empty() ? text : fmt::format("{}; {}", text, advice);
}

std::string compose(int code, std::string_view doing, std::string_view advice) {
  return with_advice(fmt::format("{} failed: {}", doing, errno_text(code)), advice);
}

}  // namespace

SystemError::SystemError(int code, std::string_view doing, std::string_view advice)
    : SystemError(Whole{}, code, compose(code, doing, advice)) {}

TimedOut::TimedOut(std::string_view doing, std::string_view advice)
    : SystemError(Whole{}, ETIMEDOUT, with_advice(fmt::format("{} took too long", doing), advice)) {
}

TimedOut::TimedOut(const SystemError& last) : SystemError(Whole{}, ETIMEDOUT, last.what()) {}

UnknownHost::UnknownHost(std::string_view host, std::string_view reason)
    : SystemError(Whole{},
                  EHOSTUNREACH,
                  fmt::format("looking up host '{}' failed: {}; check the name, or give an address",
                              host,
                              reason)) {}

EndOfStream::EndOfStream(std::string_view doing)
    : SystemError(Whole{}, 0, fmt::format("{} failed: the peer closed the connection", doing)) {}

void throw_errno(std::string_view doing, std::string_view advice) {
  throw SystemError(errno, doing, advice);
}

std::string errno_text(int code) { return std::generic_category().message(code); }

}  // namespace paceline::net
