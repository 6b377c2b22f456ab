// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/load_selection.h"

#include <algorithm>
#include <string_view>

#include "fsdp/checkpoint/files.h"
#include "fsdp/error.h"
#include "fsdp/spec/group.h"

namespace vescomm::fsdp {

namespace {

using Key = LoadSelection::Key;

// "tensor "a.b", role "master"", and how many there are.
std::string describe(const std::vector<Key> &tensors) {
    const auto &[role, name] = tensors.front();
    return fmt::format("{}, such as {}", tensors.size(),
                       checkpoint::describe({name, role, {}, VESCOMM_F32}));
}

// The names that select a parameter: its own, and those of parameters that are tied to it.
std::vector<std::vector<std::string>> names_of(const Spec &spec) {
    std::vector<std::vector<std::string>> names(spec.parameters().size());
    for (std::size_t id = 0; id < names.size(); ++id)
        if (!spec.parameters()[id].ignored())
            names[spec.parameters()[id].tied_to.value_or(id)].push_back(spec.full_name(id));
    return names;
}

void require_complete(const LoadSelection &selection, const std::string &where) {
    if (selection.missing.empty() && selection.unexpected.empty()) return;
    std::string what;
    if (!selection.missing.empty())
        what = fmt::format("tensors of this engine are missing in it: {}",
                           describe(selection.missing));
    if (!selection.unexpected.empty())
        what += fmt::format("{}it has tensors that this engine does not have: {}",
                            what.empty() ? "" : "; ", describe(selection.unexpected));
    refuse("{}: {}; set strict to 0 to load the others, or select fewer names", where, what);
}

}  // namespace

bool selects(const std::string &name, const std::string &tensor) {
    return tensor.starts_with(name) && (tensor.size() == name.size() || tensor[name.size()] == '.');
}

std::string LoadSelection::text() const {
    std::string lines;
    for (const auto &[role, name] : missing) lines += fmt::format("missing {} {}\n", role, name);
    for (const auto &[role, name] : unexpected)
        lines += fmt::format("unexpected {} {}\n", role, name);
    return lines;
}

std::set<Key> tensors_of(const Spec &spec) {
    std::set<Key> tensors;
    for (std::size_t id = 0; id < spec.parameters().size(); ++id) {
        const Parameter &parameter = spec.parameters()[id];
        if (!parameter.stored()) continue;
        const std::string name = spec.full_name(id);
        tensors.emplace(master_role, name);
        // No rank has a piece of a state without elements.
        if (parameter.frozen() || !parameter.group || parameter.elements == 0) continue;
        const Group &group = spec.groups()[*parameter.group];
        for (const Group::State &state : group.states)
            tensors.emplace(role_of_state(state, group.block_elements), name);
    }
    return tensors;
}

LoadSelection select_tensors(const Spec &spec, const checkpoint::Catalogue &catalogue,
                             const PartialLoad &what, const std::string &where) {
    std::vector<bool> used(what.names.size(), false);
    const auto selected = [&](const std::string &tensor) {
        bool any = what.names.empty();
        for (std::size_t i = 0; i < what.names.size(); ++i) {
            if (!selects(what.names[i], tensor)) continue;
            used[i] = true;
            any = true;
        }
        return any;
    };
    std::set<std::string> selected_parameters;
    const auto names = names_of(spec);
    for (std::size_t id = 0; id < names.size(); ++id)
        if (std::ranges::count_if(names[id], selected) > 0)
            selected_parameters.insert(spec.full_name(id));
    const auto concerned = [&](const std::string &role) {
        return what.states || role == master_role;
    };
    LoadSelection selection;
    const std::set<Key> own = tensors_of(spec);
    for (const Key &key : own) {
        if (!concerned(key.first) || !selected_parameters.contains(key.second)) continue;
        if (catalogue.tensors().contains(key)) selection.loaded.insert(key);
        else selection.missing.push_back(key);
    }
    for (const auto &[key, stored] : catalogue.tensors())
        if (concerned(key.first) && !own.contains(key) && selected(key.second))
            selection.unexpected.push_back(key);
    for (std::size_t i = 0; i < used.size(); ++i)
        if (!used[i])
            refuse(
                "{}: the name {} selects neither a parameter of this engine nor a tensor of the "
                "checkpoint; pass UNIT.PARAMETER, or the part of it before a dot",
                where, checkpoint::in_quotes(what.names[i]));
    if (what.strict) require_complete(selection, where);
    if (selection.loaded.empty())
        refuse("{}: it has none of the {} selected tensors of this engine{}", where,
               selection.missing.size(),
               selection.missing.empty() ? "" : ": " + describe(selection.missing));
    return selection;
}

}  // namespace vescomm::fsdp
