// SPDX-License-Identifier: Apache-2.0
// What a comparison is made of: its command line, its messages, its text, its view of the system.
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <thread>

#include "apps/compare/connection.h"
#include "apps/compare/messages.h"
#include "apps/compare/options.h"
#include "apps/compare/process_count.h"
#include "apps/compare/text_source.h"
#include "paceline/base/error.h"
#include "paceline/net/socket.h"
#include "paceline/net/system_error.h"
#include "tests/apps/command.h"
#include "tests/apps/compare_sample.h"

namespace paceline::apps {
namespace {

CompareOptions parse(const std::vector<const char*>& arguments) {
  std::vector<const char*> all{"paceline compare"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return parse_compare_options(static_cast<int>(all.size()), all.data()).value();
}

void expect_refused(const std::vector<const char*>& arguments, const std::string& words) {
  try {
    (void)parse(arguments);
    ADD_FAILURE() << "not refused: " << words;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(CompareOptions, have_defaults_that_depend_on_the_model) {
  EXPECT_EQ(parse({}).ranks, (std::vector<int>{2, 4}));
  EXPECT_EQ(parse({}).batch_size, 256);
  EXPECT_EQ(parse({"--model", "gpt"}).batch_size, 32);
  EXPECT_EQ(parse({"--batch-size", "24", "-n", "2,3"}).ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(parse({"--algorithm", "ring"}).algorithm, Algorithm::kRing);
  EXPECT_EQ(parse({"--model", "gpt", "--text", "a", "--text", "b"}).text.size(), 2U);
}

TEST(CompareOptions, name_what_is_wrong) {
  expect_refused({"-n", "2,x"}, "-n 2,x: 'x' must be a whole number");
  expect_refused({"-n", "1"}, "1 is not from 2 to 64");
  expect_refused({"-n", "2,"}, "'' must be a whole number");
  expect_refused({"-n", "2,2"}, "stands there twice");
  expect_refused({"-n", "65"}, "65 is not from 2 to 64");
  expect_refused({"--model", "bert"}, "--model bert: must be cnn, mlp or gpt");
  expect_refused({"--steps", "0"}, "--steps is 0");
  expect_refused({"--steps", "9223372036854775807"}, "it must be from 1 to 10000");
  expect_refused({"--batch-size", "0"}, "--batch-size is 0");
  expect_refused({"--batch-size", "255"}, "--batch-size 255 does not divide by 2 ranks");
  expect_refused({"--lr", "-1"}, "--lr is -1");
  expect_refused({"--lr", "x"}, "--lr x: must be a number");
  expect_refused({"--algorithm", "star"}, "--algorithm star: must be one of ring");
  expect_refused({"--algorithm", "tree"}, "--algorithm tree: must be one of ring");
  expect_refused({"--text", "f"}, "--text is for gpt");
  expect_refused({"--model", "gpt", "--data", "d"}, "--data is for cnn and mlp");
  expect_refused({"--json", ""}, "--json is empty");
  expect_refused({"--json", "f", "--html", "f"}, "--json 'f' and --html 'f' are one file");
  expect_refused({"--algorithm", ""}, "--algorithm is empty");
  expect_refused({"--rocket"}, "see paceline compare --help");
}

TEST(CompareOptions, find_one_file_under_two_names) {
  const test::Folder folder;
  const std::string file = folder.file("text", "text", test::kPrivate);
  const std::string again = folder.path() + "/./text";
  const std::string link = folder.path() + "/link";
  std::filesystem::create_symlink("text", link);
  expect_refused({"--json", file.c_str(), "--html", again.c_str()},
                 "--json '" + file + "' and --html '" + again + "' are one file");
  expect_refused({"--html", file.c_str(), "--trace", link.c_str()}, "are one file");
  expect_refused({"--model", "gpt", "--text", file.c_str(), "--json", link.c_str()},
                 "--json '" + link + "' is the text to read, --text '" + file + "'");
}

TEST(CompareMessages, come_back_as_they_were) {
  TrainingSettings settings{.contestant = {Mechanism::kDdp, 3},
                            .model = "gpt",
                            .batch_size = 12,
                            .learning_rate = 0.1,
                            .seed = 7,
                            .algorithm = Algorithm::kPairwise,
                            .text = {"a", "no UTF-8: \xff"}};
  const TrainingSettings again = settings_from(text_of(settings));
  EXPECT_EQ(again.contestant, settings.contestant);
  EXPECT_EQ(again.algorithm, settings.algorithm);
  EXPECT_EQ(again.text, settings.text);
  settings.algorithm.reset();
  EXPECT_FALSE(settings_from(text_of(settings)).algorithm.has_value());

  const ProcessRecord record = sample::ddp(2, 30).processes[1];
  const ProcessRecord same = record_from(text_of(record));
  EXPECT_EQ(text_of(same), text_of(record));
  EXPECT_EQ(same.steps, record.steps);
  EXPECT_EQ(same.ledger.calls[0].peers[0].traffic.payload_bytes_sent,
            record.ledger.calls[0].peers[0].traffic.payload_bytes_sent);
}

TEST(CompareMessages, say_what_was_due_if_it_is_something_else) {
  EXPECT_THROW((void)settings_from(text_of(ProcessRecord{})), std::runtime_error);
  EXPECT_THROW((void)record_from("no record"), std::runtime_error);
}

TEST(Connection, carries_whole_texts_and_knows_its_end) {
  auto [a, b] = net::socket_pair();
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  const std::string large(3 << 20, 'x');
  std::jthread sender([&a = a, &large, deadline] {
    Connection left(std::move(a));
    left.send("word", large, deadline);
    left.send("empty", "", deadline);
  });
  Connection right(std::move(b));
  const Connection::Text text = right.receive(deadline);
  EXPECT_EQ(text.word, "word");
  EXPECT_EQ(text.body, large);
  EXPECT_EQ(right.receive(deadline).word, "empty");
  EXPECT_THROW((void)right.receive(deadline), net::EndOfStream);
}

TEST(ProcessCount, finds_this_program_below_its_ancestor) {
  std::jthread another([](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  const ProcessCount count = count_processes(net::process_id(), this_program());
  EXPECT_EQ(count.processes, 1);
  EXPECT_GE(count.threads, 2);
  EXPECT_EQ(count_processes(net::process_id(), "/no/such/program").processes, 0);
}

TEST(TextSource, numbers_the_characters_that_occur) {
  const test::Folder folder;
  const std::string file = folder.file("text", std::string(100, 'b') + "a", test::kPrivate);
  const TextSource source = read_text({file}, 10);
  EXPECT_EQ(source.vocabulary, 2);
  EXPECT_EQ(source.characters.front(), 1);
  EXPECT_EQ(source.characters.back(), 0);
  EXPECT_EQ(source.count(), 101 - kContext);
  EXPECT_EQ(read_text({file, file}, 10).characters.size(), 202U);
}

TEST(TextSource, names_the_file_that_is_wrong) {
  const test::Folder folder;
  const std::string file = folder.file("short", "too short", test::kPrivate);
  try {
    (void)read_text({file}, 32);
    ADD_FAILURE() << "taken";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("holds 9 characters"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("at least 96"), std::string::npos) << error.what();
  }
  const std::string same = folder.file("same", std::string(200, 'a'), test::kPrivate);
  try {
    (void)read_text({same}, 32);
    ADD_FAILURE() << "taken";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("is one character 200 times"), std::string::npos);
  }
  EXPECT_THROW((void)read_text({folder.path()}, 1), std::runtime_error);
  EXPECT_THROW((void)read_text({folder.path() + "/none"}, 1), std::runtime_error);
}

}  // namespace
}  // namespace paceline::apps
