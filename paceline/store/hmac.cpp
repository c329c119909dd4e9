// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/hmac.h"

#include <sodium.h>

#include "paceline/base/assert.h"

namespace paceline::store {
namespace {

void start_sodium() {
  static const int kStarted = sodium_init();
  PACELINE_ASSERT(kStarted >= 0, "libsodium does not start");
}

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const char* text) { return reinterpret_cast<const unsigned char*>(text); }

}  // namespace

Mac hmac(const Key& key,
         std::string_view label,
         std::initializer_list<std::span<const std::byte>> parts) {
  static_assert(std::tuple_size_v<Mac> == crypto_auth_hmacsha256_BYTES);
  start_sodium();
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, raw(key.data()), key.size());
  crypto_auth_hmacsha256_update(&state, raw(label.data()), label.size());
  for (const auto part : parts)
    crypto_auth_hmacsha256_update(&state, raw(part.data()), part.size());
  Mac mac;
  crypto_auth_hmacsha256_final(&state, raw(mac.data()));
  return mac;
}

bool equal_in_constant_time(const Mac& a, std::span<const std::byte> b) {
  return b.size() == a.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> bytes) {
  start_sodium();
  randombytes_buf(bytes.data(), bytes.size());
}

std::uint32_t random_nonzero() {
  start_sodium();
  return 1 + randombytes_uniform(UINT32_MAX);
}

}  // namespace paceline::store
