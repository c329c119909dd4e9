// SPDX-License-Identifier: Apache-2.0
#include "paceline/base/ledger_book.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "paceline/base/error.h"

namespace paceline {
namespace {

TEST(LedgerBook, keeps_nothing_before_it_is_started_and_nothing_of_the_time_before) {
  LedgerBook book;
  book.add(CopyRecord{.bytes = 1});
  EXPECT_FALSE(book.on());
  EXPECT_THROW((void)book.take(), UsageError);
  book.start(kLedgerCapacity);
  book.add(CopyRecord{.bytes = 2});
  book.start(kLedgerCapacity);
  book.add(CopyRecord{.bytes = 3});
  const Ledger ledger = book.take();
  ASSERT_EQ(ledger.copies.size(), 1U);
  EXPECT_EQ(ledger.copies[0].bytes, 3U);
  EXPECT_FALSE(book.on());
}

TEST(LedgerBook, counts_what_its_capacity_leaves_out) {
  LedgerBook book;
  EXPECT_THROW(book.start(0), UsageError);
  book.start(2);
  for (int i = 0; i < 3; ++i) book.add(PhaseRecord{.device = i});
  book.add(CallRecord{.label = "another kind"});
  const Ledger ledger = book.take();
  EXPECT_EQ(ledger.phases.size(), 2U);
  EXPECT_EQ(ledger.calls.size(), 1U);
  EXPECT_EQ(ledger.left_out, 1U);
}

TEST(LedgerBook, takes_records_from_many_threads) {
  LedgerBook book;
  book.start(kLedgerCapacity);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&book] {
        for (int i = 0; i < 1000; ++i) book.add(CopyRecord{.bytes = 1});
      });
    }
  }
  EXPECT_EQ(book.take().copies.size(), 4000U);
}

TEST(Ledger, names_are_those_of_tables_and_traces) {
  EXPECT_EQ(name_of(Copy::kReplicate), "replicate");
  EXPECT_EQ(name_of(Copy::kReduce), "reduce");
  EXPECT_EQ(name_of(Phase::kBackward), "backward");
  EXPECT_EQ(name_of(static_cast<Phase>(99)), "unknown");
}

}  // namespace
}  // namespace paceline
