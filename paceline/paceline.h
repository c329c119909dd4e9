// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The core of paceline: communicators and collectives, without LibTorch.

#include "paceline/base/error.h"
#include "paceline/base/types.h"
#include "paceline/comm/communicator.h"
#include "paceline/comm/init.h"
#include "paceline/comm/work.h"
