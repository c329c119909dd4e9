// SPDX-License-Identifier: Apache-2.0
#include "paceline/store/handshake.h"

#include <fmt/format.h>

#include <utility>

#include "paceline/store/wire.h"

namespace paceline::store {
namespace {

constexpr std::uint32_t kHandshakeMagic = 0x53484c50;  // "PLHS"
constexpr std::size_t kPreambleBytes = 8;
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kHelloBytes = 4 + 4 * 4 + kNonceBytes;
constexpr std::size_t kProofBytes = std::tuple_size_v<Mac>;
constexpr std::size_t kRefusalBytes = 1 + 8 + 8;
constexpr std::uint8_t kLittle = 1;
constexpr std::uint8_t kBig = 2;

std::uint8_t number_of(std::endian order) { return order == std::endian::little ? kLittle : kBig; }
std::string_view order_name(std::uint64_t order) {
  return order == kLittle ? "little-endian" : order == kBig ? "big-endian" : "unknown";
}
std::string_view authentication_name(std::uint64_t on) { return on != 0 ? "a secret" : "none"; }
std::string_view purpose_name(std::uint64_t purpose) {
  switch (purpose) {
    case static_cast<std::uint64_t>(Purpose::kControl): return "control";
    case static_cast<std::uint64_t>(Purpose::kData): return "data";
    case static_cast<std::uint64_t>(Purpose::kHosts): return "hosts";
    default: return "unknown";
  }
}
std::string rank_name(std::uint64_t rank) {
  if (rank == kAnyRank) return "any rank but its own";
  return rank == kStoreRank ? "the store" : fmt::format("rank {}", rank);
}

Side other(Side side) { return side == Side::kInitiator ? Side::kAcceptor : Side::kInitiator; }

}  // namespace

std::string to_text(const Refusal& r) {
  switch (r.code) {
    case RefusalCode::kNotOurs: return "the other end does not speak paceline's protocol";
    case RefusalCode::kVersion:
      return fmt::format("protocol version differs: {} here, {} at the other end", r.ours,
                         r.theirs);
    case RefusalCode::kByteOrder:
      return fmt::format("byte order differs: {} here, {} at the other end", order_name(r.ours),
                         order_name(r.theirs));
    case RefusalCode::kAuthentication:
      return fmt::format("authentication differs: {} here, {} at the other end",
                         authentication_name(r.ours), authentication_name(r.theirs));
    case RefusalCode::kSecret: return "the secret differs from the one at the other end";
    case RefusalCode::kPurpose:
      return fmt::format("purpose differs: {} here, {} at the other end", purpose_name(r.ours),
                         purpose_name(r.theirs));
    case RefusalCode::kRank:
      return fmt::format("rank differs: {} here, {} at the other end", rank_name(r.ours),
                         rank_name(r.theirs));
    case RefusalCode::kWorld:
      return fmt::format("world size differs: {} here, {} at the other end", r.ours, r.theirs);
    case RefusalCode::kGeneration:
      return fmt::format("generation of the job differs: {:08x} here, {:08x} at the other end",
                         r.ours, r.theirs);
    case RefusalCode::kNoSuchRank:
      return fmt::format("a rank is out of range: {} in a world of {}", r.theirs, r.ours);
  }
  return fmt::format("refused by the other end for the unknown reason {}",
                     static_cast<unsigned>(r.code));
}

Handshake::Handshake(const Terms& terms)
    : terms_(terms), key_(terms.secret.key.value_or(Key{})), wanted_(kPreambleBytes) {
  own_hello_ = make_hello();
  if (terms_.side == Side::kInitiator) send(own_hello_);
}

std::uint8_t Handshake::own_authentication() const { return terms_.secret.key ? 1 : 0; }

Handshake::Frame Handshake::frame(Kind kind, std::span<const std::byte> body) const {
  Frame result;
  Writer out(result);
  out.number(kHandshakeMagic);
  out.number(terms_.version);
  out.number(static_cast<std::uint8_t>(kind));
  out.number(std::uint8_t{0});
  out.bytes(body);
  return result;
}

Handshake::Frame Handshake::make_hello() const {
  std::vector<std::byte> body;
  Writer out(body);
  out.number(static_cast<std::uint8_t>(terms_.side));
  out.number(static_cast<std::uint8_t>(terms_.purpose));
  out.number(own_authentication());
  out.number(number_of(terms_.byte_order));
  out.number(terms_.rank);
  out.number(terms_.peer);
  out.number(terms_.world);
  out.number(terms_.generation);
  std::array<std::byte, kNonceBytes> nonce;
  fill_random(nonce);
  out.bytes(nonce);
  return frame(Kind::kHello, body);
}

void Handshake::send(const Frame& frame) {
  output_.insert(output_.end(), frame.begin(), frame.end());
}

std::vector<std::byte> Handshake::output() { return std::exchange(output_, {}); }

void Handshake::take(std::span<const std::byte> bytes) {
  while (!bytes.empty() && state_ == State::kTalking) {
    const auto head = bytes.first(std::min(bytes.size(), wanted_));
    input_.insert(input_.end(), head.begin(), head.end());
    bytes = bytes.subspan(head.size());
    wanted_ -= head.size();
    if (wanted_ != 0) continue;
    if (input_.size() == kPreambleBytes) take_preamble();
    if (state_ == State::kTalking && wanted_ == 0) take_body();
  }
}

void Handshake::take_preamble() {
  Reader in(input_);
  if (in.number<std::uint32_t>() != kHandshakeMagic) return end_refused({});
  const auto version = in.number<std::uint16_t>();
  const auto kind = static_cast<Kind>(in.number<std::uint8_t>());
  // The layout of a refusal is the same in every version, so that it can always be read.
  if (version != terms_.version && kind != Kind::kRefuse)
    return refuse(RefusalCode::kVersion, terms_.version, version);
  switch (kind) {
    case Kind::kHello: wanted_ = kHelloBytes; return;
    case Kind::kProof: wanted_ = kProofBytes; return;
    case Kind::kAccept: wanted_ = 0; return;
    case Kind::kRefuse: wanted_ = kRefusalBytes; return;
  }
  end_refused({});
}

void Handshake::take_body() {
  const auto body = std::span<const std::byte>(input_).subspan(kPreambleBytes);
  const auto kind = static_cast<Kind>(input_[6]);
  const bool initiator = terms_.side == Side::kInitiator;
  if (kind == Kind::kRefuse) return take_refusal(body);
  if (kind == Kind::kHello && !heard_hello_) return take_hello(body);
  if (kind == Kind::kProof && heard_hello_ && !heard_proof_) return take_proof(body);
  if (kind == Kind::kAccept && initiator && heard_proof_) return accept();
  end_refused({});
}

void Handshake::take_hello(std::span<const std::byte> body) {
  their_hello_ = input_;
  heard_hello_ = true;
  Reader in(body);
  theirs_.side = in.number<std::uint8_t>();
  theirs_.purpose = in.number<std::uint8_t>();
  theirs_.authentication = in.number<std::uint8_t>();
  theirs_.byte_order = in.number<std::uint8_t>();
  theirs_.rank = in.number<std::uint32_t>();
  theirs_.peer = in.number<std::uint32_t>();
  theirs_.world = in.number<std::uint32_t>();
  theirs_.generation = in.number<std::uint32_t>();
  if (theirs_.side != static_cast<std::uint8_t>(other(terms_.side))) return end_refused({});
  if (theirs_.byte_order != number_of(terms_.byte_order))
    return refuse(RefusalCode::kByteOrder, number_of(terms_.byte_order), theirs_.byte_order);
  if (theirs_.authentication != own_authentication())
    return refuse(RefusalCode::kAuthentication, own_authentication(), theirs_.authentication);
  if (terms_.side == Side::kAcceptor) {
    send(own_hello_);
    send(frame(Kind::kProof, proof_of(Side::kAcceptor)));
  }
  expect_preamble();
}

void Handshake::take_proof(std::span<const std::byte> body) {
  heard_proof_ = true;
  if (!equal_in_constant_time(proof_of(other(terms_.side)), body))
    return refuse(RefusalCode::kSecret, 0, 0);
  authenticated_ = true;
  if (terms_.side == Side::kInitiator) {
    // Proves itself even if it will object, so that the acceptor knows whose claims differ.
    send(frame(Kind::kProof, proof_of(Side::kInitiator)));
    return expect_preamble();
  }
  if (const auto wrong = objection()) return refuse(wrong->code, wrong->ours, wrong->theirs);
  send(frame(Kind::kAccept, {}));
  state_ = State::kAccepted;
}

void Handshake::accept() {
  if (const auto wrong = objection()) return end_refused(*wrong);
  state_ = State::kAccepted;
}

std::optional<Refusal> Handshake::objection() const {
  const auto purpose = static_cast<std::uint8_t>(terms_.purpose);
  if (theirs_.purpose != purpose) return Refusal{RefusalCode::kPurpose, purpose, theirs_.purpose};
  if (theirs_.world != terms_.world)
    return Refusal{RefusalCode::kWorld, terms_.world, theirs_.world};
  if (theirs_.generation != terms_.generation)
    return Refusal{RefusalCode::kGeneration, terms_.generation, theirs_.generation};
  const bool asked_for_us = theirs_.peer == terms_.rank || theirs_.peer == kAnyRank;
  if (!asked_for_us) return Refusal{RefusalCode::kRank, terms_.rank, theirs_.peer};
  const bool is_rank = theirs_.rank < terms_.world;
  if (!is_rank && theirs_.rank != kStoreRank)
    return Refusal{RefusalCode::kNoSuchRank, terms_.world, theirs_.rank};
  const bool anybody = is_rank && theirs_.rank != terms_.rank;
  const bool expected = terms_.peer == kAnyRank ? anybody : theirs_.rank == terms_.peer;
  if (!expected) return Refusal{RefusalCode::kRank, terms_.peer, theirs_.rank};
  return std::nullopt;
}

void Handshake::take_refusal(std::span<const std::byte> body) {
  Reader in(body);
  Refusal refusal;
  refusal.code = static_cast<RefusalCode>(in.number<std::uint8_t>());
  refusal.theirs = in.number<std::uint64_t>();  // the sender's own value comes first
  refusal.ours = in.number<std::uint64_t>();
  end_refused(refusal);
}

void Handshake::expect_preamble() {
  input_.clear();
  wanted_ = kPreambleBytes;
}

void Handshake::refuse(RefusalCode code, std::uint64_t ours, std::uint64_t theirs) {
  std::vector<std::byte> body;
  Writer out(body);
  out.number(static_cast<std::uint8_t>(code));
  out.number(ours);
  out.number(theirs);
  send(frame(Kind::kRefuse, body));
  end_refused({code, ours, theirs});
}

void Handshake::end_refused(const Refusal& refusal) {
  refusal_ = refusal;
  state_ = State::kRefused;
}

Mac Handshake::proof_of(Side side) const {
  const bool first_is_ours = terms_.side == Side::kInitiator;
  const Frame& first = first_is_ours ? own_hello_ : their_hello_;
  const Frame& second = first_is_ours ? their_hello_ : own_hello_;
  const bool initiator = side == Side::kInitiator;
  return hmac(key_, initiator ? "paceline initiator" : "paceline acceptor", {first, second});
}

Key Handshake::session_key() const {
  const bool first_is_ours = terms_.side == Side::kInitiator;
  const Frame& first = first_is_ours ? own_hello_ : their_hello_;
  const Frame& second = first_is_ours ? their_hello_ : own_hello_;
  return hmac(key_, "paceline session", {first, second});
}

}  // namespace paceline::store
