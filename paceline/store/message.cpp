// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/message.h"

#include <fmt/format.h>

#include <array>

#include "paceline/base/assert.h"
#include "paceline/store/wire.h"

namespace paceline::store {
namespace {

constexpr std::uint32_t kMessageMagic = 0x4d434c50;  // "PLCM"
constexpr std::size_t kPlainHeaderBytes = 16;
constexpr std::string_view kLabel = "paceline control message";
constexpr auto kLastCode = static_cast<std::uint8_t>(CommErrc::kAborted);
constexpr auto kLastKind = static_cast<std::uint8_t>(Event::Kind::kDeparted);

void put(Writer& out, const Hello& hello) {
  out.number(static_cast<std::uint64_t>(hello.patience.count()));
  out.number(static_cast<std::uint64_t>(hello.connect_timeout.count()));
  out.text(hello.host, kMaxShortText);
  out.text(hello.address, kMaxShortText);
  out.text(hello.algorithm, kMaxShortText);
}

void put(Writer& out, const Table& table) {
  PACELINE_ASSERT(table.entries.size() <= kMaxTableEntries, "a table message is too long");
  out.number(table.generation);
  out.number(table.first);
  out.number(static_cast<std::uint16_t>(table.entries.size()));
  for (const auto& entry : table.entries) {
    out.text(entry.host, kMaxShortText);
    out.text(entry.address, kMaxShortText);
  }
}

void put(Writer&, const Ready&) {}
void put(Writer&, const Start&) {}
void put(Writer&, const Tick&) {}

void put(Writer& out, const Standing& standing) {
  out.number(standing.sequence);
  out.number(standing.issued);
  out.number(standing.hash);
  out.text(standing.text, kMaxText);
}

void put(Writer& out, const Cause& cause) {
  out.number(static_cast<std::uint8_t>(cause.code));
  out.signed_number(cause.rank);
  out.signed_number(cause.peer);
  out.number(cause.from_sequence);
  out.text(cause.text, kMaxText);
}

void put(Writer& out, const Event& event) {
  out.number(static_cast<std::uint8_t>(event.kind));
  put(out, event.cause);
  out.number(event.sequence);
  out.signed_number(event.rank);
  out.text(event.text, kMaxText);
}

void put(Writer& out, const HostReport& report) {
  out.number(report.ranks);
  out.text(report.host, kMaxShortText);
  out.text(report.problem, kMaxText);
}

void put(Writer& out, const HostVerdict& verdict) {
  out.number(verdict.world);
  out.number(verdict.first_rank);
  out.text(verdict.problem, kMaxText);
}

std::chrono::milliseconds milliseconds_from(Reader& in) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;  // more than anybody waits
  return std::chrono::milliseconds(std::min(in.number<std::uint64_t>(), kLongest));
}

void get(Reader& in, Hello& hello) {
  hello.patience = milliseconds_from(in);
  hello.connect_timeout = milliseconds_from(in);
  hello.host = in.text(kMaxShortText);
  hello.address = in.text(kMaxShortText);
  hello.algorithm = in.text(kMaxShortText);
}

void get(Reader& in, Table& table) {
  table.generation = in.number<std::uint32_t>();
  table.first = in.number<std::uint32_t>();
  const std::size_t count = in.number<std::uint16_t>();
  if (count > kMaxTableEntries) throw BadMessage("a table message has too many entries");
  for (std::size_t i = 0; i < count; ++i) {
    auto& entry = table.entries.emplace_back();
    entry.host = in.text(kMaxShortText);
    entry.address = in.text(kMaxShortText);
  }
}

void get(Reader&, Ready&) {}
void get(Reader&, Start&) {}
void get(Reader&, Tick&) {}

void get(Reader& in, Standing& standing) {
  standing.sequence = in.number<std::uint64_t>();
  standing.issued = in.number<std::uint64_t>();
  standing.hash = in.number<std::uint64_t>();
  standing.text = in.text(kMaxText);
}

void get(Reader& in, Cause& cause) {
  const auto code = in.number<std::uint8_t>();
  if (code > kLastCode) throw BadMessage(fmt::format("a cause has the unknown code {}", code));
  cause.code = static_cast<CommErrc>(code);
  cause.rank = in.signed_number();
  cause.peer = in.signed_number();
  cause.from_sequence = in.number<std::uint64_t>();
  cause.text = in.text(kMaxText);
}

void get(Reader& in, Event& event) {
  const auto kind = in.number<std::uint8_t>();
  if (kind > kLastKind) throw BadMessage(fmt::format("an event has the unknown kind {}", kind));
  event.kind = static_cast<Event::Kind>(kind);
  get(in, event.cause);
  event.sequence = in.number<std::uint64_t>();
  event.rank = in.signed_number();
  event.text = in.text(kMaxText);
}

void get(Reader& in, HostReport& report) {
  report.ranks = in.number<std::uint32_t>();
  report.host = in.text(kMaxShortText);
  report.problem = in.text(kMaxText);
}

void get(Reader& in, HostVerdict& verdict) {
  verdict.world = in.number<std::uint32_t>();
  verdict.first_rank = in.number<std::uint32_t>();
  verdict.problem = in.text(kMaxText);
}

/// Makes the alternative number `type` of Message and reads it.
template <std::size_t I = 0>
Message get_alternative(std::size_t type, Reader& in) {
  if constexpr (I == std::variant_size_v<Message>) {
    throw BadMessage(fmt::format("a message has the unknown type {}", type));
  } else {
    if (type != I) return get_alternative<I + 1>(type, in);
    std::variant_alternative_t<I, Message> message;
    get(in, message);
    return message;
  }
}

Mac check_of(const Key& key,
             Side speaker,
             std::span<const std::byte> header,
             std::span<const std::byte> payload) {
  const auto side = static_cast<std::byte>(speaker);
  return hmac(key, kLabel, {std::span(&side, 1), header, payload});
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  std::vector<std::byte> payload;
  Writer out(payload);
  std::visit([&out](const auto& one) { put(out, one); }, message);
  PACELINE_ASSERT(payload.size() <= kMaxPayload, "a message is too long");
  return payload;
}

Message decode(std::uint16_t type, std::span<const std::byte> payload) {
  Reader in(payload);
  Message message = get_alternative(type, in);
  in.end();
  return message;
}

void Sealer::append(const Message& message, std::vector<std::byte>& out) {
  const auto payload = encode(message);
  std::vector<std::byte> header;
  Writer fields(header);
  fields.number(kMessageMagic);
  fields.number(kProtocolVersion);
  fields.number(static_cast<std::uint16_t>(message.index()));
  fields.number(static_cast<std::uint32_t>(payload.size()));
  fields.number(counter_++);
  Writer all(out);
  all.bytes(header);
  all.bytes(check_of(key_, speaker_, header, payload));
  all.bytes(payload);
}

void Opener::feed(std::span<const std::byte> bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::optional<Message> Opener::next() {
  const auto rest = std::span<const std::byte>(bytes_).subspan(begin_);
  if (rest.size() < kHeaderBytes) return std::nullopt;
  Reader in(rest);
  if (in.number<std::uint32_t>() != kMessageMagic)
    throw BadMessage("bytes that are no control message");
  if (in.number<std::uint16_t>() != kProtocolVersion)
    throw BadMessage("a control message of another version");
  const auto type = in.number<std::uint16_t>();
  const std::size_t length = in.number<std::uint32_t>();
  if (length > kMaxPayload) throw BadMessage("a control message is too long");
  if (in.number<std::uint32_t>() != counter_)
    throw BadMessage("a control message was repeated or left out");
  const auto check = in.bytes(std::tuple_size_v<Mac>);
  if (rest.size() < kHeaderBytes + length) return std::nullopt;
  const auto payload = in.bytes(length);
  if (!equal_in_constant_time(check_of(key_, speaker_, rest.first(kPlainHeaderBytes), payload),
                              check))
    throw BadMessage("a control message fails its check");
  ++counter_;
  begin_ += kHeaderBytes + length;
  return decode(type, payload);
}

}  // namespace paceline::store
