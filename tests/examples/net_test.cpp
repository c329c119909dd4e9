// SPDX-License-Identifier: Apache-2.0
#include "net.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "folder.h"
#include "images.h"

namespace example::tests {
namespace {

TEST(Net, has_the_promised_layers) {
  const Net net;
  std::vector<std::string> names;
  std::int64_t count = 0;
  for (const auto& parameter : net->named_parameters()) {
    names.push_back(parameter.key());
    count += parameter.value().numel();
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                      "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}));
  EXPECT_EQ(count, 1'199'882);
  EXPECT_TRUE(net->buffers().empty());
}

TEST(Net, saved_and_loaded_has_the_same_hash_and_another_net_has_not) {
  const Folder folder;
  Net net;
  save_net(net, folder.file("net.pt"));
  Net other;
  EXPECT_NE(parameter_hash(other), parameter_hash(net));
  torch::load(other, folder.file("net.pt"));
  EXPECT_EQ(parameter_hash(other), parameter_hash(net));
}

TEST(Net, hash_sees_a_change_of_one_bit) {
  const Net net;
  const std::uint64_t before = parameter_hash(net);
  auto* last = static_cast<unsigned char*>(net->fc2->bias.mutable_data_ptr());
  last[0] = static_cast<unsigned char>(last[0] ^ 1U);
  EXPECT_NE(parameter_hash(net), before);
}

TEST(Images, come_as_asked_scaled_and_with_their_labels) {
  LabelledImages images;
  images.pixels.assign(3 * kPixels, 0);
  images.pixels[2 * kPixels + 5] = 255;
  images.labels = {7, 8, 9};
  const auto batch = Images(images).get_batch({2, 0});
  EXPECT_EQ(batch.data.sizes(), (std::vector<std::int64_t>{2, 1, 28, 28}));
  EXPECT_TRUE(batch.target.equal(torch::tensor({9, 7}, torch::kLong)));
  const float dark = (0.0F - 0.2860F) / 0.3530F;
  const float bright = (1.0F - 0.2860F) / 0.3530F;
  EXPECT_EQ(batch.data[0].flatten()[5].item<float>(), bright);
  EXPECT_EQ(batch.data.eq(dark).sum().item<std::int64_t>(), 2 * 784 - 1);
}

}  // namespace
}  // namespace example::tests
