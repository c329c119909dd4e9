// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// How two ends of a connection prove to each other that they belong to the same job. Pure: bytes
/// in, bytes out; sockets and deadlines are in half_open.h.
///
///   initiator                         acceptor
///   hello (nonce i)            ->
///                              <-     hello (nonce a)
///                              <-     proof: HMAC(secret, "acceptor", both hellos)
///   proof: HMAC(secret, "initiator", both hellos) ->
///                              <-     accept
/// Either side may answer with `refuse` instead, which holds a code and both values, nothing else.
/// This authenticates the connection, not the bytes that follow; control messages carry checks of
/// their own, made with the session key.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/store/hmac.h"
#include "paceline/store/join.h"
#include "paceline/store/message.h"

namespace paceline::store {

enum class Purpose : std::uint8_t { kControl = 1, kData = 2, kHosts = 3 };

/// The store's own number where a rank stands else.
inline constexpr std::uint32_t kStoreRank = 0xffffffff;
/// An acceptor's expectation: any rank.
inline constexpr std::uint32_t kAnyRank = 0xfffffffe;

/// What one end says of itself, and whom it expects at the other end.
struct Terms {
  Side side = Side::kInitiator;
  Purpose purpose = Purpose::kControl;
  std::uint32_t rank = 0;           ///< of this end
  std::uint32_t peer = kStoreRank;  ///< of the other end
  std::uint32_t world = 1;
  std::uint32_t generation = 0;  ///< 0 on control connections: the meeting makes it
  Secret secret;
  std::uint16_t version = kProtocolVersion;      ///< tests change it
  std::endian byte_order = std::endian::native;  ///< tests change it
};

/// Why a connection was refused. The numbers travel: never renumber.
enum class RefusalCode : std::uint8_t {
  kNotOurs = 0,  ///< the bytes are not of this protocol; never sent
  kVersion = 1,
  kByteOrder = 2,
  kAuthentication = 3,  ///< one end has a secret, the other has none
  kSecret = 4,
  kPurpose = 5,
  kRank = 6,
  kWorld = 7,
  kGeneration = 8,
  kNoSuchRank = 9
};

struct Refusal {
  RefusalCode code = RefusalCode::kNotOurs;
  std::uint64_t ours = 0;
  std::uint64_t theirs = 0;
};

/// "world size differs: 4 here, 3 at the other end".
[[nodiscard]] std::string to_text(const Refusal& refusal);

/// One end of a handshake.
///
/// Order  Send output(), read exactly wanted() bytes, give them to take(), and so on until state()
///        is no longer kTalking; then send output() once more.
class Handshake {
 public:
  enum class State { kTalking, kAccepted, kRefused };

  explicit Handshake(const Terms& terms);

  /// Bytes to send now; gives each byte once.
  [[nodiscard]] std::vector<std::byte> output();
  /// How many bytes to read next; 0 once it has ended. Never more than belong to the handshake.
  [[nodiscard]] std::size_t wanted() const { return state_ == State::kTalking ? wanted_ : 0; }
  /// Takes bytes, at most wanted().
  void take(std::span<const std::byte> bytes);

  [[nodiscard]] State state() const { return state_; }
  /// Valid in kRefused.
  [[nodiscard]] const Refusal& refusal() const { return refusal_; }
  /// Whether the other end has proved that it knows the secret (or both have none, on purpose).
  [[nodiscard]] bool authenticated() const { return authenticated_; }
  /// What the other end said it is; valid once authenticated.
  [[nodiscard]] std::uint32_t peer_rank() const { return theirs_.rank; }
  /// Key of the messages that follow; valid in kAccepted.
  [[nodiscard]] Key session_key() const;

 private:
  enum class Kind : std::uint8_t { kHello = 1, kProof = 2, kAccept = 3, kRefuse = 4 };
  using Frame = std::vector<std::byte>;
  struct Claims {  // what the other end's hello says
    std::uint8_t side = 0;
    std::uint8_t purpose = 0;
    std::uint8_t authentication = 0;
    std::uint8_t byte_order = 0;
    std::uint32_t rank = 0;
    std::uint32_t peer = 0;
    std::uint32_t world = 0;
    std::uint32_t generation = 0;
  };

  [[nodiscard]] Frame frame(Kind kind, std::span<const std::byte> body) const;
  [[nodiscard]] Frame make_hello() const;
  void send(const Frame& frame);
  void take_preamble();
  void take_body();
  void take_hello(std::span<const std::byte> body);
  void take_proof(std::span<const std::byte> body);
  void take_refusal(std::span<const std::byte> body);
  void expect_preamble();
  void accept();
  /// Refuses at both ends.
  void refuse(RefusalCode code, std::uint64_t ours, std::uint64_t theirs);
  /// Ends here; the other end has ended already.
  void end_refused(const Refusal& refusal);
  /// What is wrong with an authenticated end's claims.
  [[nodiscard]] std::optional<Refusal> objection() const;
  [[nodiscard]] Mac proof_of(Side side) const;
  [[nodiscard]] std::uint8_t own_authentication() const;

  Terms terms_;
  Key key_;
  State state_ = State::kTalking;
  Refusal refusal_;
  bool authenticated_ = false;
  bool heard_hello_ = false;
  bool heard_proof_ = false;
  Claims theirs_;
  Frame own_hello_;
  Frame their_hello_;
  std::vector<std::byte> output_;
  std::vector<std::byte> input_;  // of the frame that is being read
  std::size_t wanted_;
};

}  // namespace paceline::store
