// SPDX-License-Identifier: Apache-2.0
#include "paceline/comm/secret.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <span>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/net/private_file.h"
#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"
#include "paceline/store/hmac.h"

namespace paceline {
namespace {

using Key = std::array<std::byte, 32>;

constexpr std::size_t kShortestSecret = 16;
constexpr std::size_t kLongestSecret = 4096;

void need_sodium() {
  if (sodium_init() < 0) throw UsageError("libsodium cannot start: no source of random numbers");
}

unsigned char* bytes_of(Key& key) { return reinterpret_cast<unsigned char*>(key.data()); }

/// A file may have any length, a key has one.
Key derive(std::span<const std::byte> content) {
  Key key{};
  crypto_generichash(bytes_of(key), key.size(),
                     reinterpret_cast<const unsigned char*>(content.data()), content.size(),
                     nullptr, 0);
  return key;
}

std::vector<std::byte> without_line_end(std::vector<std::byte> content) {
  while (!content.empty() &&
         (content.back() == std::byte{'\n'} || content.back() == std::byte{'\r'}))
    content.pop_back();
  return content;
}

/// Borrows an inherited number: it stays open.
class Borrowed {
 public:
  explicit Borrowed(int number) : fd_(number) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() { (void)fd_.release(); }
  [[nodiscard]] const net::Fd& fd() const noexcept { return fd_; }

 private:
  net::Fd fd_;
};

store::Secret read_descriptor(int number) {
  const Borrowed inherited(number);
  std::vector<std::byte> content;
  try {
    content = net::read_sealed_memory(inherited.fd(), sizeof(Key) + 1);
    net::make_close_on_exec(inherited.fd());
  } catch (const net::SystemError& error) {
    throw UsageError(fmt::format(
        "PACELINE_SECRET_FD={}: the descriptor that paceline run handed down cannot be read ({}); "
        "did a wrapper close it?",
        number, error.what()));
  }
  if (content.size() != sizeof(Key))
    throw UsageError(fmt::format(
        "PACELINE_SECRET_FD={}: the descriptor holds no secret; is the variable from another job?",
        number));
  Key key{};
  std::copy(content.begin(), content.end(), key.begin());
  return {key};
}

}  // namespace

store::Secret make_secret() {
  Key key{};
  store::fill_random(key);
  return {key};
}

store::Secret read_secret_file(const std::string& path) {
  need_sodium();
  std::vector<std::byte> content;
  try {
    content = without_line_end(net::read_private_file(path, kLongestSecret));
  } catch (const net::SystemError& error) {
    throw UsageError(fmt::format("the secret file cannot be used: {}", error.what()));
  }
  if (content.size() < kShortestSecret)
    throw UsageError(
        fmt::format("secret file '{}' holds {} bytes, too few to be a secret; make one: "
                    "(umask 077; head -c 32 /dev/urandom | base64 >'{}')",
                    path, content.size(), path));
  return {derive(content)};
}

net::Fd hand_down(const store::Secret& secret) {
  if (!secret.key) throw UsageError("there is no secret to hand down");
  return net::make_sealed_memory("paceline-secret", *secret.key);
}

store::Secret read_secret(const SecretSource& source) {
  if (const auto* descriptor = std::get_if<SecretDescriptor>(&source))
    return read_descriptor(descriptor->number);
  if (const auto* file = std::get_if<SecretFile>(&source)) return read_secret_file(file->path);
  return {};
}

}  // namespace paceline
