// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory of requests that do not exist yet.
#include <set>
#include <string>
#include <vector>

#include "api/guard.h"
#include "api/handles.h"
#include "base/types.h"
#include "comm/buffer_choice.h"
#include "comm/machine_exchange.h"
#include "comm/request_options.h"
#include "execute/kernels.h"
#include "schedule/forced.h"

using namespace vescomm::internal;

namespace {

constexpr const char *function = "vescomm_reduce_scatter_v_get_partial_bytes";

[[noreturn]] void refuse(const std::string &why) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, std::string(function) + ": " + why);
}

std::vector<const Layout *> values_of(const vescomm_layout_t *const *layouts, size_t count) {
    std::vector<const Layout *> values;
    for (size_t i = 0; i < count; ++i) {
        require(layouts[i], function, "a layout");
        values.push_back(&layouts[i]->value);
        if (values.back()->ranks() != values.front()->ranks())
            refuse("layout " + std::to_string(i) + " is for " +
                   std::to_string(values.back()->ranks()) + " ranks, and layout 0 for " +
                   std::to_string(values.front()->ranks()) + "; give layouts for the same ranks");
    }
    return values;
}

// Sets what depends on the ranks of a communicator: all of them, or `members`.
void use_communicator(const Communicator &comm, const int32_t *members, int ranks,
                      SumSettings &settings) {
    settings.in_order = comm.reproducible();
    if (members == nullptr) {
        if (comm.ranks() != ranks)
            refuse("the communicator has " + std::to_string(comm.ranks()) +
                   " ranks, and the layouts are for " + std::to_string(ranks) +
                   "; give the members that these are");
        settings.nodes = comm.nodes();
        settings.machine = comm.machine();
        return;
    }
    std::vector<int> node_of;
    const std::vector<int> all(members, members + ranks);
    std::set<int> seen;
    for (const int member : all) {
        if (member < 0 || member >= comm.ranks())
            refuse("there is no rank " + std::to_string(member) +
                   " in the communicator, which has " + std::to_string(comm.ranks()));
        if (!seen.insert(member).second)
            refuse("rank " + std::to_string(member) + " is twice among the members");
        node_of.push_back(comm.nodes().node_of(member));
    }
    settings.nodes = Nodes::from_numbers(node_of);
    settings.machine =
        machine_exchange(settings.nodes, texts_of_members(comm.machine_texts(), all)).machine;
}

// The settings of this process, for ranks that do not run yet.
void use_process(const Config &config, const int32_t *nodes, int ranks, SumSettings &settings) {
    settings.in_order = config.reproducible == "yes";
    settings.nodes = nodes == nullptr
                         ? Nodes::single(ranks)
                         : Nodes::from_numbers({nodes, static_cast<std::size_t>(ranks)});
    settings.machine = machine_here(config, expects_tcp(config));
}

}  // namespace

vescomm_status_t vescomm_reduce_scatter_v_get_partial_bytes(
    const vescomm_comm_t *comm, const int32_t *members, const int32_t *nodes,
    const vescomm_layout_t *const *layouts, size_t count, vescomm_type_t type,
    const vescomm_request_options_t *options, uint64_t *bytes) {
    return guarded([&] {
        require(bytes, function, "bytes");
        const auto given = read_options(options, function, "options");
        SumSettings settings;
        settings.type = type == VESCOMM_TYPE_DEFAULT ? VESCOMM_F32 : type;
        if (!is_type(settings.type)) refuse("there is no type " + std::to_string(type));
        settings.op = given.op;
        if (!can_combine(settings.op, settings.type))
            refuse("there is no " + name_of_op(settings.op) + " of " + name_of_type(settings.type));
        settings.in_place = given.output == nullptr;
        if (count == 0) {
            *bytes = 0;
            return;
        }
        require(layouts, function, "layouts");
        const std::vector<const Layout *> values = values_of(layouts, count);
        const int ranks = values.front()->ranks();
        std::string algorithm = given.algorithm != nullptr ? given.algorithm : "";
        const auto force = [&](const Forced &forced) {
            settings.forced = {algorithm, {}};
            if (!algorithm.empty()) return;
            algorithm = forced.of(Collective::reduce_scatter_v);
            if (!algorithm.empty()) settings.forced = {algorithm, "VESCOMM_ALGORITHM"};
        };
        if (comm != nullptr) {
            require(comm, function, "comm");
            if (nodes != nullptr)
                refuse("nodes was given with a communicator, which has nodes; give one of them");
            use_communicator(*comm->value, members, ranks, settings);
            force(comm->value->forced());
        } else {
            if (members != nullptr) refuse("members was given without a communicator; give nodes");
            const Config config = read_config(process_environment());
            use_process(config, nodes, ranks, settings);
            force(Forced::parse(config.algorithm));
        }
        *bytes = partial_bytes(settings, values);
    });
}
