// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/forced.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"

namespace vescomm::internal {

namespace {

std::string list(const std::vector<std::string_view> &names) {
    std::string text;
    for (const std::string_view name : names)
        text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
}

std::string collectives() {
    std::vector<std::string_view> names;
    for (const AlgorithmEntry &entry : algorithms())
        if (std::ranges::find(names, name_of(entry.collective)) == names.end())
            names.push_back(name_of(entry.collective));
    return list(names);
}

std::string algorithms_of(std::string_view collective) {
    std::vector<std::string_view> names;
    for (const AlgorithmEntry &entry : algorithms())
        if (name_of(entry.collective) == collective) names.push_back(entry.name);
    return list(names);
}

}  // namespace

Forced Forced::parse(std::string_view text) {
    const auto refuse = [text](const std::string &why) {
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "VESCOMM_ALGORITHM=" + std::string(text) + ": " + why);
    };
    Forced forced;
    if (text.empty()) return forced;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        const std::string part(text.substr(at, comma - at));
        const std::size_t equals = part.find('=');
        if (equals == std::string::npos)
            refuse("\"" + part + "\" is no COLLECTIVE=ALGORITHM, such as all_reduce=flat");
        const std::string collective = part.substr(0, equals), name = part.substr(equals + 1);
        const std::string names = algorithms_of(collective);
        if (names.empty())
            refuse("there is no collective \"" + collective + "\"; there is: " + collectives());
        const AlgorithmEntry *found = nullptr;
        for (const AlgorithmEntry &entry : algorithms())
            if (name_of(entry.collective) == collective && entry.name == name) found = &entry;
        if (found == nullptr)
            refuse("there is no algorithm \"" + name + "\" for " + collective +
                   "; there is: " + names);
        if (!forced.names_.emplace(found->collective, found->name).second)
            refuse(collective + " is there twice");
        at = comma + 1;
    }
    return forced;
}

std::string_view Forced::of(Collective collective) const {
    const auto found = names_.find(collective);
    return found == names_.end() ? std::string_view() : found->second;
}

}  // namespace vescomm::internal
