// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bodies of all kernels of the table.
#include "gpu/kernels/adam8bit.h"
#include "gpu/kernels/adamw.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/meeting.h"
#include "gpu/kernels/peer.h"
#include "gpu/kernels/quantise.h"
#include "gpu/kernels/sgd.h"
#include "gpu/kernels/squares.h"
#include "gpu/kernels/sum_quantised.h"
#include "gpu/kernels/table.h"
