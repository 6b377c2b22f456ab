// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a model and of a checkpoint that a partial load concerns. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/checkpoint/catalogue.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// Arguments of a partial load.
struct PartialLoad {
    std::vector<std::string> names;  // of parameters and units; empty: all
    bool strict = false;  // a tensor that is missing or unexpected is an error
    bool states = false;  // states of optimizers, and the number of steps
};

struct LoadSelection {
    using Key = std::pair<std::string, std::string>;  // role and name, as in a catalogue

    std::set<Key> loaded;  // tensors that the model and the checkpoint have
    std::vector<Key> missing;  // selected tensors of the model that the checkpoint does not have
    std::vector<Key> unexpected;  // selected tensors of the checkpoint that the model does not have

    // Lines "missing ROLE NAME" and "unexpected ROLE NAME".
    std::string text() const;
};

// True if a name is that of a tensor, or ends at a dot of it: "block.1" selects "block.1.weight",
// and not "block.10.weight".
bool selects(const std::string &name, const std::string &tensor);

// The roles and names of all tensors of a model, as checkpoints have them.
std::set<LoadSelection::Key> tensors_of(const Spec &spec);

// Throws Failure, which begins with `where`, if a name selects nothing, if nothing is to be loaded,
// and, if `what` is strict, if tensors are missing or unexpected.
LoadSelection select_tensors(const Spec &spec, const checkpoint::Catalogue &catalogue,
                             const PartialLoad &what, const std::string &where);

}  // namespace vescomm::fsdp
