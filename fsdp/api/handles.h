// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The objects behind the handles of fsdp.h.
#pragma once

#include "fsdp/engine/engine.h"
#include "fsdp/spec/spec.h"

struct vescomm_fsdp_spec {
    vescomm::fsdp::Spec spec;
};

struct vescomm_fsdp {
    vescomm::fsdp::Engine engine;
};
