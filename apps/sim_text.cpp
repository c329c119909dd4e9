// SPDX-License-Identifier: Apache-2.0
#include "apps/sim_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "paceline/plan/schedule.h"

namespace paceline::apps {
namespace {

using Text = fmt::memory_buffer;

template <typename... Args>
void print(Text& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
}

/// "15 16 17", with the middle left out if there are many.
std::string list_of(const std::vector<double>& values) {
  constexpr std::size_t kShown = 16;
  if (values.size() <= kShown) return fmt::format("{}", fmt::join(values, " "));
  const auto head = values.begin() + kShown / 2;
  return fmt::format("{} … {}", fmt::join(values.begin(), head, " "),
                     fmt::join(values.end() - 2, values.end(), " "));
}

std::string span_of(const std::vector<std::uint64_t>& values) {
  if (values.empty()) return "none";
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *least == *most ? fmt::format("{}", *least) : fmt::format("{}..{}", *least, *most);
}

const char* verdict(bool good) { return good ? "equal" : "DIFFERENT"; }

void print_holdings(Text& text, const RingReport& ring) {
  constexpr int kShown = 8;
  for (int r = 0; r < ring.ranks; ++r) {
    if (ring.ranks > kShown && r == kShown / 2) {
      print(text, "    …\n");
      r = ring.ranks - 1;
    }
    print(text, "  rank {:<4} holds      {}\n", r, list_of(initial_buffer(r, ring.elements)));
  }
}

/// The slices of one rank side by side; the one that just changed in brackets.
std::string slices_of(const RingReport& ring, const std::vector<double>& buffer, int changed) {
  std::string line;
  for (int c = 0; c < ring.ranks; ++c) {
    const Range range = plan::chunk(ring.elements, ring.ranks, c);
    const auto at = [&](std::uint64_t e) {
      return buffer.begin() + static_cast<std::ptrdiff_t>(e);
    };
    const std::string values = fmt::format("{:g}", fmt::join(at(range.begin), at(range.end), " "));
    const std::string slice = c == changed ? "[" + values + "]" : " " + values + " ";
    line += fmt::format("{:<{}}", slice, 8 * std::max<std::uint64_t>(range.size(), 1));
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

nlohmann::json json_of(const Volume& volume) {
  return {{"dp_master", volume.dp_master},
          {"dp_device", volume.dp_device},
          {"ring_link", volume.ring_link}};
}

}  // namespace

std::string text_of(const RingReport& ring) {
  Text text;
  print(text, "Ring all-reduce: {} ranks, {} elements each, mean\n\n", ring.ranks, ring.elements);
  print_holdings(text, ring);
  print(text, "\n  every rank ends with {}\n", list_of(ring.result));
  print(text, "  the plain mean is    {}\n", list_of(ring.expected));
  print(text, "  result and plain mean: {}; bits of all ranks: {}\n\n", verdict(ring.matches),
        verdict(ring.bits_equal));
  print(text, "  elements carried     {:>10} {:>10}\n", "counted", "formula");
  print(text, "  by each link         {:>10} {:>10}   2n - c[r] - c[(r+1) mod N]\n",
        span_of(ring.link_elements), span_of(ring.link_formula));
  print(text, "  by all {:<4} links    {:>10} {:>10}   2(N-1)n\n", ring.link_elements.size(),
        ring.total_elements, ring.total_formula);
  return fmt::to_string(text);
}

std::string steps_of(const RingReport& ring) {
  Text text;
  print(text, "Slices of each rank; [in brackets]: what just arrived\n\nbefore\n");
  for (int r = 0; r < ring.ranks; ++r) {
    print(text, "  rank {:<4} {}\n", r, slices_of(ring, initial_buffer(r, ring.elements), -1));
  }
  for (std::size_t i = 0; i < ring.steps.size(); ++i) {
    const bool adds = 2 * i < ring.steps.size();
    const bool whole = 2 * (i + 1) == ring.steps.size();
    print(text, "\nstep {} of {}: {}\n", i + 1, ring.steps.size(),
          !adds   ? "all-gather; the right neighbour keeps a finished slice"
          : whole ? "reduce-scatter; the last term, then divided by N: finished"
                  : "reduce-scatter; the right neighbour adds its own slice");
    for (std::size_t r = 0; r < ring.steps[i].size(); ++r) {
      const Arrival& arrival = ring.steps[i][r];
      print(text, "  rank {:<4} {}\n", r, slices_of(ring, arrival.buffer, arrival.chunk));
    }
  }
  return fmt::to_string(text);
}

std::string text_of(const std::vector<VolumeRow>& rows) {
  Text text;
  print(text, "Bytes moved by an all-reduce of M bytes, counted from executed schedules\n\n");
  print(text, "       DP master               DP other device    ring link\n");
  print(text, "   N   counted | 2(N-1) M      counted | 2 M      counted | 2(N-1)/N M\n");
  for (const VolumeRow& row : rows) {
    const Volume& c = row.counted;
    const Volume& f = row.formula;
    print(text,
          "  {:>2}   {:>5g} M | {:>6g} M      {:>5g} M | {:g} M      {:>5.2f} M | {:>8.2f} M{}\n",
          row.ranks, c.dp_master, f.dp_master, c.dp_device, f.dp_device, c.ring_link, f.ring_link,
          c == f ? "" : "   DIFFERENT");
  }
  print(text,
        "\nDP: everything through device 0, whose traffic grows with N. Ring: each link carries "
        "less\n"
        "than 2 M, however many ranks.\n");
  return fmt::to_string(text);
}

std::string json_of(const RingReport& ring, const std::vector<VolumeRow>& rows) {
  nlohmann::json volume = nlohmann::json::array();
  for (const VolumeRow& row : rows) {
    nlohmann::json entry = json_of(row.counted);
    entry["ranks"] = row.ranks;
    entry["formula"] = json_of(row.formula);
    volume.push_back(std::move(entry));
  }
  const nlohmann::json all{{"ring",
                            {{"ranks", ring.ranks},
                             {"elements", ring.elements},
                             {"result", ring.result},
                             {"expected", ring.expected},
                             {"matches", ring.matches},
                             {"bits_equal", ring.bits_equal},
                             {"link_elements", ring.link_elements},
                             {"total_elements", ring.total_elements}}},
                           {"volume", std::move(volume)}};
  return all.dump() + "\n";
}

}  // namespace paceline::apps
