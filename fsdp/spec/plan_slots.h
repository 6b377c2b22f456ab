// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The slots of a plan: their number, their sizes, and the units that use them. Pure.
#pragma once

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// Sets all members of the plan that are about slots, for a plan whose buckets are laid out. Throws
// Failure if a unit needs more slots than there are.
void make_slots(ModelPlan &plan, const Spec &spec);

}  // namespace vescomm::fsdp
