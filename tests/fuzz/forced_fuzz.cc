// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// VESCOMM_ALGORITHM (schedule/forced.h).
//
// Invariants: accepted text names rows of the table of algorithms, and the text of the accepted
// overrides parses to the same overrides.
#include "schedule/forced.h"

#include <map>

#include "base/error.h"
#include "fuzz/fuzz.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

std::map<std::string, std::string> overrides(const Forced &forced) {
    std::map<std::string, std::string> names;
    for (const AlgorithmEntry &entry : algorithms()) {
        const std::string_view name = forced.of(entry.collective);
        if (!name.empty()) names[std::string(name_of(entry.collective))] = name;
    }
    return names;
}

bool in_table(std::string_view collective, std::string_view name) {
    for (const AlgorithmEntry &entry : algorithms())
        if (name_of(entry.collective) == collective && entry.name == name) return true;
    return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string_view text = fuzz::view(data, size);
    try {
        const auto names = overrides(Forced::parse(text));
        require(names.empty() == text.empty(), "only empty text forces nothing");
        std::string again;
        for (const auto &[collective, name] : names) {
            require(in_table(collective, name), "an algorithm is one of the table");
            again += (again.empty() ? "" : ",") + collective + "=" + name;
        }
        require(again.size() == text.size(), "every part of the text counts");
        require(overrides(Forced::parse(again)) == names,
                "the text of accepted overrides parses to the same overrides");
    } catch (const Error &error) {
        require(error.status == VESCOMM_ERROR_INVALID_ARGUMENT, "the variable is to blame");
        require(std::string_view(error.what()).starts_with("VESCOMM_ALGORITHM="),
                "a sentence names the variable");
    }
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    return {
        {"nothing", ""},
        {"one", "all_reduce=two_phase"},
        {"several", "all_reduce=flat,all_gather_v=ring,reduce_scatter_v=direct,broadcast=tree"},
        {"twice", "all_reduce=flat,all_reduce=chain"},
        {"no-collective", "all_of_it=flat"},
        {"no-algorithm", "all_reduce=tree"},
        {"no-equals", "flat"},
        {"empty-part", "all_reduce=flat,"},
    };
}
