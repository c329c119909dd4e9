// SPDX-License-Identifier: Apache-2.0
// Memory that processes share, its limits, and how its descriptor travels.
#include "paceline/net/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "paceline/net/descriptor_passing.h"
#include "paceline/net/host.h"
#include "paceline/net/memory_limits.h"
#include "paceline/net/socket.h"
#include "paceline/net/stream.h"
#include "paceline/net/system_error.h"

namespace paceline::net {
namespace {

constexpr std::size_t kMiB = 1 << 20;

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const SystemError& error) {
    return error.what();
  }
  return "not refused";
}

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

std::size_t bytes_in_memory(const Fd& file) {
  struct stat info {};
  EXPECT_EQ(::fstat(file.raw(), &info), 0);
  return static_cast<std::size_t>(info.st_blocks) * 512;
}

/// For as long as it lives.
class Limit {
 public:
  Limit(decltype(RLIMIT_AS) what, rlim_t bytes) : what_(what) {
    ::getrlimit(what_, &before_);
    const rlimit now{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(what_, &now), 0);
  }
  Limit(const Limit&) = delete;
  ~Limit() { ::setrlimit(what_, &before_); }

 private:
  decltype(RLIMIT_AS) what_;
  rlimit before_{};
};

TEST(SharedMemory, is_seen_through_every_mapping) {
  const auto own = SharedMemory::create("test", kMiB);
  const auto theirs = SharedMemory::map(own.file(), kMiB);
  EXPECT_NE(own.bytes().data(), theirs.bytes().data());
  EXPECT_EQ(theirs.bytes().size(), kMiB);
  own.bytes()[77] = std::byte{5};
  EXPECT_EQ(theirs.bytes()[77], std::byte{5});
}

TEST(SharedMemory, is_only_reserved_until_committed_and_free_once_given_back) {
  const auto memory = SharedMemory::create("test", 256 * kMiB);
  EXPECT_EQ(bytes_in_memory(memory.file()), 0U);
  memory.commit(8 * kMiB, 5 * kMiB);
  EXPECT_EQ(bytes_in_memory(memory.file()), 5 * kMiB);
  memory.bytes()[8 * kMiB] = std::byte{1};
  memory.give_back(8 * kMiB, 5 * kMiB);
  EXPECT_EQ(bytes_in_memory(memory.file()), 0U);
  EXPECT_EQ(memory.bytes()[8 * kMiB], std::byte{});
}

TEST(SharedMemory, never_changes_its_size_and_is_closed_in_children) {
  const auto memory = SharedMemory::create("test", kMiB);
  EXPECT_EQ(::ftruncate(memory.file().raw(), 0), -1);
  EXPECT_EQ(::ftruncate(memory.file().raw(), 2 * kMiB), -1);
  EXPECT_EQ(::fcntl(memory.file().raw(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_NE(::fcntl(memory.file().raw(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(SharedMemory, refuses_files_that_could_change_or_are_not_as_told) {
  const auto memory = SharedMemory::create("test", kMiB);
  EXPECT_TRUE(says(refusal([&] { (void)SharedMemory::map(memory.file(), 2 * kMiB); }),
                   "it has 1048576 bytes instead of 2097152"));
  Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.raw(), kMiB), 0);
  EXPECT_TRUE(says(refusal([&] { (void)SharedMemory::map(unsealed, kMiB); }), "may change"));
  ASSERT_EQ(::fcntl(unsealed.raw(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(SharedMemory::map(unsealed, kMiB).bytes().size(), kMiB);
  const Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(says(refusal([&] { (void)SharedMemory::map(file, kMiB); }), "no file in memory"));
  const auto ends = socket_pair();
  EXPECT_TRUE(
      says(refusal([&] { (void)SharedMemory::map(ends.first, kMiB); }), "no file in memory"));
}

TEST(SharedMemory, a_file_limit_is_named_instead_of_a_signal) {
  const Limit limit(RLIMIT_FSIZE, kMiB);
  const std::string text = refusal([] { (void)SharedMemory::create("test", 64 * kMiB); });
  EXPECT_TRUE(says(text, "ulimit -f) is 1024 KiB")) << text;
}

/// KiB of the mapping at `at` that are mapped as huge pages.
std::size_t huge_kib(const std::byte* at) {
  std::ifstream maps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(at));
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(begin)) found = true;
    constexpr std::string_view kField = "ShmemPmdMapped:";
    if (found && line.starts_with(kField)) return std::stoul(line.substr(kField.size()));
  }
  return 0;
}

/// Whether this system makes a huge page of a file in memory when it is asked to.
bool has_huge_pages() {
  const auto memory = SharedMemory::create("probe", SharedMemory::kHugePage);
  std::memset(memory.bytes().data(), 1, memory.bytes().size());
  constexpr int kCollapse = 25;  // headers before Linux 6.1 have no MADV_COLLAPSE
  return ::madvise(memory.bytes().data(), memory.bytes().size(), kCollapse) == 0;
}

TEST(SharedMemory, has_huge_pages_where_whole_ones_fit) {
  const auto memory = SharedMemory::create("test", 16 * kMiB);
  const auto theirs = SharedMemory::map(memory.file(), 16 * kMiB);
  memory.commit(kMiB, 4 * kMiB);      // one fits
  memory.commit(6 * kMiB, 9 * kMiB);  // four fit
  for (std::size_t at = 6 * kMiB; at < 15 * kMiB; at += page_bytes()) {
    EXPECT_EQ(theirs.bytes()[at], std::byte{});
    memory.bytes()[at] = std::byte{3};
  }
  for (const auto* mapping : {&memory, &theirs}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping->bytes().data()) % SharedMemory::kHugePage,
              0U);
  }
  if (!has_huge_pages()) GTEST_SKIP() << "this system makes none";
  EXPECT_EQ(huge_kib(memory.bytes().data()), 5 * 2048U);
  EXPECT_EQ(huge_kib(theirs.bytes().data()), 4 * 2048U);
  memory.give_back(6 * kMiB, 9 * kMiB);
  EXPECT_EQ(bytes_in_memory(memory.file()), 4 * kMiB);
  EXPECT_EQ(theirs.bytes()[8 * kMiB], std::byte{});
}

TEST(SharedMemory, has_small_pages_where_huge_ones_are_not_to_be_had) {
  ASSERT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
  const auto memory = SharedMemory::create("test", 8 * kMiB);
  memory.commit(0, 8 * kMiB);
  EXPECT_EQ(::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
  EXPECT_EQ(bytes_in_memory(memory.file()), 8 * kMiB);
  EXPECT_EQ(huge_kib(memory.bytes().data()), 0U);
  memory.bytes()[5 * kMiB] = std::byte{3};
  EXPECT_EQ(SharedMemory::map(memory.file(), 8 * kMiB).bytes()[5 * kMiB], std::byte{3});
}

// The sanitizers' shadow faults on its own, and needs more than any limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(SharedMemory, touched_pages_cost_no_fault) {
  const auto memory = SharedMemory::create("test", 8 * kMiB);
  memory.commit(0, 8 * kMiB);
  rusage before{};
  rusage after{};
  ::getrusage(RUSAGE_THREAD, &before);
  for (std::size_t at = 0; at < 8 * kMiB; at += page_bytes()) memory.bytes()[at] = std::byte{1};
  ::getrusage(RUSAGE_THREAD, &after);
  EXPECT_LT(after.ru_minflt - before.ru_minflt, 100);
}

TEST(SharedMemory, an_address_space_limit_is_named) {
  const Limit limit(RLIMIT_AS, std::size_t{2} << 30);
  const std::string text =
      refusal([] { (void)SharedMemory::create("test", std::size_t{8} << 30); });
  EXPECT_TRUE(says(text, "mapping 8192 MiB")) << text;
  EXPECT_TRUE(says(text, "(ulimit -v) is 2048 MiB")) << text;
}
#endif

TEST(SharedMemory, refuses_more_than_the_machine_has_and_keeps_nothing) {
  const std::size_t bytes = physical_memory_bytes() / kMiB * 2 * kMiB;
  const auto memory = SharedMemory::create("test", bytes);
  const std::string text = refusal([&] { memory.commit(0, bytes); });
  EXPECT_TRUE(says(text, "taking " + name_bytes(bytes) + " of shared memory failed")) << text;
  EXPECT_TRUE(says(text, "are free")) << text;
  EXPECT_EQ(bytes_in_memory(memory.file()), 0U);
}

/// A machine made of files.
class Machine {
 public:
  Machine()
      : root_(std::filesystem::temp_directory_path() /
              ("machine-" + std::to_string(process_id()))) {
    write("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:   800 kB\n");
  }
  Machine(const Machine&) = delete;
  ~Machine() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] MemoryHeadroom headroom() const { return memory_headroom(root_); }

 private:
  std::filesystem::path root_;
};

TEST(MemoryHeadroom, without_groups_is_the_machines) {
  const Machine machine;
  EXPECT_EQ(machine.headroom().free_bytes, 800U * 1024);
  EXPECT_EQ(machine.headroom().limit_bytes, 1000U * 1024);
  EXPECT_EQ(machine.headroom().limit, "the machine's memory");
}

TEST(MemoryHeadroom, a_parents_limit_counts_and_caches_are_free) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/job/rank\n");
  machine.write("sys/fs/cgroup/job/rank/memory.max", "max\n");
  machine.write("sys/fs/cgroup/job/rank/memory.current", "5\n");
  machine.write("sys/fs/cgroup/job/memory.max", "10000\n");
  machine.write("sys/fs/cgroup/job/memory.current", "9000\n");
  machine.write("sys/fs/cgroup/job/memory.stat",
                "anon 5000\ninactive_file 2000\nactive_file 1000\n");
  EXPECT_EQ(machine.headroom().free_bytes, 4000U);
  EXPECT_EQ(machine.headroom().limit_bytes, 10'000U);
  EXPECT_EQ(machine.headroom().limit, "the memory limit of control group '/job'");
}

TEST(MemoryHeadroom, the_older_layout_is_known_too) {
  const Machine machine;
  machine.write("proc/self/cgroup", "4:cpu,memory:/job\n0::/\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  machine.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500\n");
  machine.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "700\n");
  EXPECT_EQ(machine.headroom().free_bytes, 0U);
  EXPECT_EQ(machine.headroom().limit_bytes, 500U);
}

TEST(MemoryHeadroom, of_this_machine_is_some_of_it) {
  EXPECT_GT(memory_headroom().free_bytes, 0U);
  EXPECT_GT(physical_memory_bytes(), 0U);
}

TEST(NameBytes, keeps_two_digits) {
  EXPECT_EQ(name_bytes(0), "0 B");
  EXPECT_EQ(name_bytes(1536 * 1024), "1536 KiB");
  EXPECT_EQ(name_bytes(64 * kMiB), "64 MiB");
}

TEST(DescriptorPassing, the_other_end_gets_the_same_file) {
  const auto [a, b] = socket_pair();
  const auto memory = SharedMemory::create("test", kMiB);
  send_descriptor(a, memory.file(), soon());
  const Fd got = recv_descriptor(b, soon());
  EXPECT_NE(::fcntl(got.raw(), F_GETFD) & FD_CLOEXEC, 0);
  memory.bytes()[3] = std::byte{9};
  EXPECT_EQ(SharedMemory::map(got, kMiB).bytes()[3], std::byte{9});
}

TEST(DescriptorPassing, waits_for_its_deadline_and_no_longer) {
  const auto [a, b] = socket_pair();
  EXPECT_THROW((void)recv_descriptor(b, Deadline::after(std::chrono::milliseconds(5))), TimedOut);
}

TEST(DescriptorPassing, a_plain_byte_and_an_end_are_refused) {
  auto ends = socket_pair();
  Fd& a = ends.first;
  const Fd& b = ends.second;
  send_all(a, std::array<std::byte, 1>{}, soon());
  EXPECT_TRUE(says(refusal([&] { (void)recv_descriptor(b, soon()); }), "none came"));
  a.reset();
  EXPECT_THROW((void)recv_descriptor(b, soon()), EndOfStream);
  EXPECT_TRUE(says(refusal([&] { send_descriptor(b, b, soon()); }), "Broken pipe"));
}

TEST(DescriptorPassing, surplus_descriptors_are_closed) {
  const auto count = [] {
    const std::filesystem::directory_iterator open("/proc/self/fd");
    return std::distance(begin(open), end(open));
  };
  const auto ends = socket_pair();
  const Fd& a = ends.first;
  const Fd& b = ends.second;
  const auto before = count();
  for (const std::size_t surplus : {2U, 7U}) {
    std::byte byte{};
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(7 * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(surplus * sizeof(int));
    cmsghdr* head = CMSG_FIRSTHDR(&header);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(surplus * sizeof(int));
    for (std::size_t i = 0; i < surplus; ++i) {
      const int raw = a.raw();
      std::memcpy(CMSG_DATA(head) + i * sizeof raw, &raw, sizeof raw);
    }
    ASSERT_EQ(::sendmsg(a.raw(), &header, 0), 1);
    EXPECT_TRUE(says(refusal([&] { (void)recv_descriptor(b, soon()); }), "more than one came"));
  }
  EXPECT_EQ(count(), before);
}

TEST(HostIdentity, is_that_of_every_process_of_this_host_and_names_its_namespaces) {
  const std::string text = host_identity();
  EXPECT_EQ(text, host_identity());
  EXPECT_TRUE(text.starts_with("host: ")) << text;
  EXPECT_TRUE(says(text, "\nnetwork namespace: net:[")) << text;
  EXPECT_TRUE(says(text, "\npid namespace: pid:[")) << text;
}

}  // namespace
}  // namespace paceline::net
