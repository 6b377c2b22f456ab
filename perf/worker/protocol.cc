// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/worker/protocol.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace vescomm::perf {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Case, collective, type, output_type, op, root, shared, in_place,
                                   on_device, non_blocking, block, cuts, tensors)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Turn, warm_up, iterations, operations, round, keep_source,
                                   skew_us, late_rank, compute_us)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Command, name, what, turn)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Costs, register_us, create_us, algorithm, predicted_us)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Verdict, wrong, first)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Answer, error, unsupported, version, rank, node, costs, times_us,
                                   compute_us, start_us, verdict)

namespace {

// Error texts may contain any bytes.
std::string dump(const nlohmann::json &json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <typename T>
T parse(const std::string &line) {
    try {
        return nlohmann::json::parse(line).get<T>();
    } catch (const nlohmann::json::exception &error) {
        throw std::runtime_error("a message is not understood: " + std::string(error.what()) +
                                 ": " + line.substr(0, 200));
    }
}

}  // namespace

std::string to_line(const Command &command) {
    return dump(command);
}

std::string to_line(const Answer &answer) {
    return dump(answer);
}

Command command_of(const std::string &line) {
    return parse<Command>(line);
}

Answer answer_of(const std::string &line) {
    return parse<Answer>(line);
}

}  // namespace vescomm::perf
