// SPDX-License-Identifier: Apache-2.0
// Conversions between F32 and the 16-bit floats, over all 16-bit values and all boundaries.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "paceline/kernel/fold.h"
#include "paceline/kernel/targets.h"
#include "tests/kernel/operands.h"
#include "tests/kernel/scalar_twin.h"

namespace paceline::kernel {
namespace {

template <typename T>
inline constexpr Dtype kDtype = std::is_same_v<T, Float16> ? Dtype::kF16 : Dtype::kBF16;

template <typename T>
std::vector<std::uint32_t> widen(const std::vector<std::uint16_t>& from) {
  std::vector<std::uint32_t> to(from.size());
  const std::array terms{Term{std::as_bytes(std::span(from)).data(), Form::kT}};
  const Target target{std::as_writable_bytes(std::span(to)).data(), Form::kSum};
  fold(kDtype<T>, ReduceOp::kSum, 1, from.size(), terms, {&target, 1});
  return to;
}

template <typename T>
std::vector<std::uint16_t> narrow(const std::vector<std::uint32_t>& from) {
  std::vector<std::uint16_t> to(from.size());
  const std::array terms{Term{std::as_bytes(std::span(from)).data(), Form::kSum}};
  const Target target{std::as_writable_bytes(std::span(to)).data(), Form::kT};
  fold(kDtype<T>, ReduceOp::kSum, 1, from.size(), terms, {&target, 1});
  return to;
}

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

/// Appends all multiples of `step` in [begin, end) and two neighbours on either side, either sign.
void append_boundaries(std::uint32_t begin,
                       std::uint32_t end,
                       std::uint32_t step,
                       std::vector<std::uint32_t>& values) {
  for (std::uint32_t boundary = begin; boundary < end; boundary += step) {
    for (std::uint32_t near = boundary - 2; near != boundary + 3; ++near) {
      values.push_back(near & 0x7fffffffU);
      values.push_back(near | 0x80000000U);
    }
  }
}

/// F32 values at and beside each point where rounding to 16 bits may change, and random ones.
std::vector<std::uint32_t> rounding_sweep() {
  std::vector<std::uint32_t> values;
  append_boundaries(0, 0x80000000U, 1U << 15, values);            // BF16: values and halves
  append_boundaries(0x38000000U, 0x48000000U, 1U << 12, values);  // F16: 2^-15 to 2^17
  for (int i = 0; i < 1 << 12; ++i) {  // F16's subnormals and their halves, up to 2^-13
    const auto bits = std::bit_cast<std::uint32_t>(std::ldexp(static_cast<float>(i), -25));
    append_boundaries(bits, bits + 1, 1, values);
  }
  Random random(7);
  for (int i = 0; i < 200000; ++i) values.push_back(static_cast<std::uint32_t>(random.next()));
  return values;
}

template <typename T>
std::vector<std::uint16_t> narrow_by_twin(const std::vector<std::uint32_t>& from) {
  std::vector<std::uint16_t> to;
  to.reserve(from.size());
  for (const std::uint32_t bits : from)
    to.push_back(twin::narrow<T>(std::bit_cast<float>(bits)).bits);
  return to;
}

template <typename T>
void expect_exact_widening() {
  const auto halves = all_halves();
  const auto wide = widen<T>(halves);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const auto expected = std::bit_cast<std::uint32_t>(twin::widen(T{halves[i]}));
    ASSERT_EQ(wide[i], expected) << std::hex << i;
  }
  const auto back = narrow<T>(wide);
  const auto expected = narrow_by_twin<T>(wide);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(back[i], expected[i]) << std::hex << i;
    const bool nan = std::isnan(std::bit_cast<float>(wide[i]));
    ASSERT_TRUE(nan || back[i] == halves[i]) << std::hex << i;
  }
}

template <typename T>
void expect_rounding_to_nearest_even() {
  static const auto values = rounding_sweep();
  static const auto expected = narrow_by_twin<T>(values);
  const auto result = narrow<T>(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (result[i] != expected[i]) {
      FAIL() << std::hex << values[i] << ": " << result[i] << ", expected " << expected[i];
    }
  }
}

std::string target_of(const testing::TestParamInfo<std::string>& test) { return test.param; }

class RoundingOn : public testing::TestWithParam<std::string> {
 protected:
  ForcedTarget target_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Target, RoundingOn, testing::ValuesIn(targets()), target_of);

TEST_P(RoundingOn, widens_every_f16_exactly) { expect_exact_widening<Float16>(); }
TEST_P(RoundingOn, widens_every_bf16_exactly) { expect_exact_widening<BFloat16>(); }
TEST_P(RoundingOn, rounds_f32_to_nearest_even_f16) { expect_rounding_to_nearest_even<Float16>(); }
TEST_P(RoundingOn, rounds_f32_to_nearest_even_bf16) { expect_rounding_to_nearest_even<BFloat16>(); }

// Literal bits, so that the twin cannot be wrong in the same way.
TEST_P(RoundingOn, knows_the_corners_of_f16) {
  const std::vector<std::uint32_t> from{0x477fefff, 0x477ff000, 0x33000000, 0x33000001,
                                        0x33c00000, 0x387fc000, 0x387fe000, 0x3f801000,
                                        0x3f803000, 0xff800001, 0x80000001, 0xc7800000};
  const std::vector<std::uint16_t> to{0x7bff, 0x7c00, 0x0000, 0x0001, 0x0002, 0x03ff,
                                      0x0400, 0x3c00, 0x3c02, 0x7e00, 0x8000, 0xfc00};
  EXPECT_EQ(narrow<Float16>(from), to);
  EXPECT_EQ(widen<Float16>({0x0001, 0x83ff, 0x7bff, 0x7c01}),
            (std::vector<std::uint32_t>{0x33800000, 0xb87fc000, 0x477fe000, 0x7f802000}));
}
TEST_P(RoundingOn, knows_the_corners_of_bf16) {
  const std::vector<std::uint32_t> from{0x7f7f7fff, 0x7f7f8000, 0x00008000, 0x00008001,
                                        0x00018000, 0x3f808000, 0x3f818000, 0xffffffff};
  const std::vector<std::uint16_t> to{0x7f7f, 0x7f80, 0x0000, 0x0001,
                                      0x0002, 0x3f80, 0x3f82, 0x7fc0};
  EXPECT_EQ(narrow<BFloat16>(from), to);
}

}  // namespace
}  // namespace paceline::kernel
