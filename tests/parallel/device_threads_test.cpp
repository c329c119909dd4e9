// SPDX-License-Identifier: Apache-2.0
// The threads of DataParallel where the system refuses some, and in a forked child.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "data_parallel_support.h"
#include "paceline/base/error.h"
#include "paceline/parallel/data_parallel.h"

namespace {
int threads_left = -1;  // that may be made; any number if negative
}  // namespace

// Takes the place of the system's, which refuses a thread where a limit is reached.
extern "C" int pthread_create(pthread_t* thread,
                              const pthread_attr_t* attributes,
                              void* (*start)(void*),
                              void* argument) {
  if (threads_left == 0) return EAGAIN;
  if (threads_left > 0) --threads_left;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, start, argument);
}

namespace paceline {
namespace {

using ::torch::nn::Linear;

std::string error_with_threads(int count) {
  threads_left = count;
  std::string text;
  try {
    DataParallel net(Linear(3, 2), cpu_devices(4));
  } catch (const UsageError& error) {
    text = error.what();
  }
  threads_left = -1;
  return text;
}

TEST(DeviceThreads, that_the_system_refuses_are_named) {
  for (int count = 0; count < 5; ++count) {  // four, and one that keeps LibTorch's number
    const std::string text = error_with_threads(count);
    const int refused = count == 0 ? 1 : count;
    EXPECT_NE(text.find("DataParallel: the system refuses thread " + std::to_string(refused) +
                        " of 4, one for each device"),
              std::string::npos)
        << count << ": " << text;
    EXPECT_NE(text.find("ulimit -u"), std::string::npos) << text;
  }
  EXPECT_EQ(error_with_threads(5), "");
}

TEST(DeviceThreads, that_the_system_refuses_leave_the_threads_of_others_alone) {
  const int before = at::get_num_threads();
  at::set_num_threads(6);
  const int of_others = tests::threads_of_a_new_thread();
  for (int count = 0; count < 5; ++count) {
    EXPECT_NE(error_with_threads(count), "");
    EXPECT_EQ(at::get_num_threads(), 6);
    EXPECT_EQ(tests::threads_of_a_new_thread(), of_others);
  }
  at::set_num_threads(before);
}

// Were they made at once, one would keep, as what others have, what another has set meanwhile.
TEST(DeviceThreads, of_wrappers_that_are_made_at_once_leave_the_threads_of_others_alone) {
  const int before = at::get_num_threads();
  at::set_num_threads(6);
  const int of_others = tests::threads_of_a_new_thread();
  std::vector<std::thread> makers;
  for (int maker = 0; maker < 4; ++maker) {
    makers.emplace_back([] {
      for (int i = 0; i < 20; ++i) DataParallel net(Linear(3, 2), cpu_devices(2));
    });
  }
  for (auto& maker : makers) maker.join();
  EXPECT_EQ(tests::threads_of_a_new_thread(), of_others);
  at::set_num_threads(before);
}

using Net = DataParallel<::torch::nn::LinearImpl>;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string error_of_forward(Net& net) {
  return error_of([&] { static_cast<void>(net(::torch::ones({4, 3}))); });
}

bool names_the_fork(const std::string& text) {
  return text.find("forked from the one that made the wrapper") != std::string::npos;
}

// In the child nothing of gtest may run: it ends at once, and its code is what it has found.
int code_of_forked_child(std::unique_ptr<Net>& net, const ::torch::Tensor& output) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const std::string of_backward = error_of([&] { output.sum().backward(); });
    const std::string of_forward = error_of_forward(*net);
    net.reset();  // must not wait for threads that are not there
    ::_exit((names_the_fork(of_forward) ? 0 : 1) + (names_the_fork(of_backward) ? 0 : 2));
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(DeviceThreads, are_refused_to_a_forked_child_and_stay_with_the_parent) {
  auto net = std::make_unique<Net>(Linear(3, 2), cpu_devices(2));
  const ::torch::Tensor output = (*net)(::torch::ones({4, 3}));
  EXPECT_EQ(code_of_forked_child(net, output), 0);
  output.sum().backward();
  EXPECT_EQ(error_of_forward(*net), "");
}

}  // namespace
}  // namespace paceline
