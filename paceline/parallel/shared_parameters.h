// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Parameters that exist once for all ranks of a host.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/parallel/tensor_io.h"

namespace paceline {

/// "parameters a and b share memory", which one memory for all ranks cannot keep; empty if none do.
[[nodiscard]] std::string shared_storage_among(const std::vector<NamedTensor>& parameters);

/// Moves parameters into memory that all ranks share, with rank 0's values, and notices who
/// changes them there.
///
/// Threads   One caller at a time.
/// Lifetime  The parameters keep the memory, whatever becomes of this object.
class SharedParameters {
 public:
  /// Collective. `parameters` are each there once, on the CPU, in memory of their own.
  ///
  /// Errors  As Communicator::share().
  SharedParameters(std::vector<NamedTensor> parameters,
                   Communicator& comm,
                   const CallOptions& options);

  /// All elements of parameter `index`, in the order of its memory; writing to them changes no
  /// version counter.
  [[nodiscard]] const at::Tensor& flat(std::size_t index) const { return flat_[index]; }

  /// The names of those that were changed in place, or moved elsewhere, since the last accept();
  /// empty if none was. LibTorch's own optimizers go around version counters, so a few bytes of
  /// each parameter are compared too.
  [[nodiscard]] std::string edited() const;

  /// Takes the parameters as they are now. Autograd then refuses graphs that have saved them.
  void accept();

  enum class Values : bool { kOfMemory, kOfParameters };
  /// Puts those that were moved elsewhere, as torch::load does, back into the shared memory, and
  /// keeps the values of one side.
  /// @return  The names of those whose values do not fit there: these have the memory's. Empty if
  ///          all do.
  std::string bring_home(Values values);

  /// Whether any of the tensor's memory is here.
  [[nodiscard]] bool touches(const at::Tensor& tensor) const;

 private:
  using Sample = std::array<std::uint64_t, 3>;
  [[nodiscard]] bool at_home(std::size_t index) const;
  [[nodiscard]] Sample sample_of(std::size_t index) const;

  std::vector<NamedTensor> parameters_;
  Region region_;
  std::vector<at::Tensor> homes_;  // each where it belongs, in its shape
  std::vector<at::Tensor> flat_;
  std::vector<std::uint32_t> versions_;
  std::vector<Sample> samples_;
};

}  // namespace paceline
