// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/gradient_writes.h"

#include <set>

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

// By parameter that is not tied: true if several parameters of one unit have its gradient.
std::vector<bool> gradients_shared_in_a_unit(const Spec &spec) {
    std::vector<bool> shared(spec.parameters().size(), false);
    for (const Unit &unit : spec.units()) {
        std::set<std::size_t> owners;
        for (const std::size_t id : unit.parameters) {
            const std::size_t owner = spec.parameters()[id].tied_to.value_or(id);
            if (!owners.insert(owner).second) shared[owner] = true;
        }
    }
    return shared;
}

}  // namespace

GradientWrites::GradientWrites(const Spec &spec)
    : written_(spec.parameters().size(), false), shared_(gradients_shared_in_a_unit(spec)) {}

void GradientWrites::begin(const ModelPlan &plan, int unit) {
    for (const std::size_t bucket : plan.of_unit[unit])
        for (const Place &place : plan.buckets[bucket].places) written_[place.parameter] = false;
}

GradientWrites::Begin GradientWrites::begin_write(std::size_t parameter) {
    if (written_[parameter]) return {VESCOMM_FSDP_ADD, false};
    written_[parameter] = true;
    if (!shared_[parameter]) return {VESCOMM_FSDP_OVERWRITE, false};
    return {VESCOMM_FSDP_ADD, true};
}

void require_gradient_type(vescomm_type_t type, vescomm_type_t to_type) {
    if (type != VESCOMM_F32 && type != to_type)
        throw Failure(VESCOMM_ERROR_UNSUPPORTED,
                      fmt::format("the gradient has type {}; push f32 or the type of the "
                                  "gradients, {}",
                                  type, to_type));
}

}  // namespace vescomm::fsdp
