// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/checkpoint/report.h"

#include <fmt/format.h>

#include <new>
#include <nlohmann/json.hpp>

#include "fsdp/checkpoint/error.h"
#include "planner/formats/input_error.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using nlohmann::json;

std::string encode(const Report &report) {
    // Paths in sentences need not be UTF-8.
    return json({report.status, report.text, report.payload})
        .dump(-1, ' ', false, json::error_handler_t::replace);
}

Report decode(const std::string &text, std::size_t rank) {
    try {
        const json values = json::parse(text);
        return {values.at(0).get<vescomm_status_t>(), values.at(1).get<std::string>(),
                values.at(2).get<std::string>()};
    } catch (const json::exception &) {
        throw Error(VESCOMM_ERROR_INTERNAL,
                    fmt::format("the report of rank {} about a save cannot be read", rank));
    }
}

}  // namespace

Report report_of(const std::exception_ptr &failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const Failure &error) {  // of a checkpoint, or of the engine
        return {error.status, error.what(), {}};
    } catch (const formats::InputError &error) {
        return {VESCOMM_ERROR_INVALID_ARGUMENT, error.what(), {}};
    } catch (const std::bad_alloc &) {
        return {VESCOMM_ERROR_OUT_OF_MEMORY, "out of memory: an allocation failed", {}};
    } catch (const std::exception &error) {
        return {VESCOMM_ERROR_INTERNAL, error.what(), {}};
    }
}

std::vector<std::string> run_on_all(Agreement &agreement, const std::function<std::string()> &step,
                                    const std::function<void()> &on_error) {
    Report mine;
    try {
        mine.payload = step();
    } catch (...) {
        mine = report_of(std::current_exception());
    }
    const std::vector<std::string> texts = agreement.all_gather(encode(mine));
    std::vector<std::string> payloads;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        Report report = decode(texts[rank], rank);
        if (report.status < 0) {
            on_error();
            throw Error(report.status, fmt::format("rank {}: {}", rank, report.text));
        }
        payloads.push_back(std::move(report.payload));
    }
    return payloads;
}

}  // namespace vescomm::fsdp::checkpoint
