// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/formats/strict_json.h"

#include <fmt/format.h>

#include <unordered_set>
#include <vector>

#include "planner/formats/input_error.h"
#include "planner/formats/quoted.h"

namespace vescomm::formats {
namespace {

using nlohmann::json;

// Counts what the parser reads, and throws before a limit is exceeded.
class Watcher {
public:
    Watcher(const std::string &where, const JsonLimits &limits) : where_(where), limits_(limits) {}

    bool operator()(int, json::parse_event_t event, json &value) {
        switch (event) {
            case json::parse_event_t::object_start:
            case json::parse_event_t::array_start:
                enter();
                break;
            case json::parse_event_t::object_end:
            case json::parse_event_t::array_end:
                keys_.pop_back();
                break;
            case json::parse_event_t::key:
                note_key(value.get_ref<const std::string &>());
                break;
            case json::parse_event_t::value:
                count();
                break;
        }
        return true;
    }

private:
    void enter() {
        count();
        if (static_cast<int>(keys_.size()) == limits_.depth)
            throw InputError(
                fmt::format("{}: the JSON is nested more than {} deep", where_, limits_.depth));
        keys_.emplace_back();
    }

    void count() {
        if (++values_ > limits_.values)
            throw InputError(
                fmt::format("{}: the JSON has more than {} values, far more than a "
                            "list of tensors needs",
                            where_, limits_.values));
    }

    void note_key(const std::string &key) {
        if (!keys_.back().insert(key).second)
            throw InputError(
                fmt::format("{}: the key {} is there twice in one object; names must "
                            "be unique",
                            where_, quoted_text(key)));
    }

    const std::string &where_;
    const JsonLimits &limits_;
    std::vector<std::unordered_set<std::string>> keys_;  // keys of each open object
    std::size_t values_ = 0;
};

}  // namespace

json parse_strictly(std::string_view text, const std::string &where, const JsonLimits &limits) {
    Watcher watcher(where, limits);
    try {
        return json::parse(text.begin(), text.end(), std::ref(watcher));
    } catch (const json::parse_error &error) {
        if (error.byte > text.size())
            throw InputError(
                fmt::format("{}: this is not JSON: the text ends too early, after {} bytes", where,
                            text.size()));
        throw InputError(fmt::format("{}: this is not JSON, from byte {} of {} on", where,
                                     error.byte, text.size()));
    } catch (const json::exception &) {
        throw InputError(
            fmt::format("{}: a number is larger than any that JSON readers agree on", where));
    }
}

std::string quoted_value(const json &value) {
    if (value.is_string()) return quoted_text(value.get_ref<const std::string &>());
    if (value.is_object()) return "an object";
    if (value.is_array() && value.size() > 8) return fmt::format("a list of {}", value.size());
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace vescomm::formats
