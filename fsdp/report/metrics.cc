// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/report/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

namespace vescomm::fsdp {

namespace {

// The name of a unit as the value of a label.
std::string escape(const std::string &name) {
    std::string text;
    for (const char letter : name) {
        if (letter == '\n') {
            text += "\\n";
            continue;
        }
        if (letter == '\\' || letter == '"') text += '\\';
        text += letter;
    }
    return text;
}

std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
    return fmt::format("{}", value);
}

template <typename Integer>
std::string number(Integer value) {
    return std::to_string(value);
}

// A metric family consists of its help, its type and its samples.
class Text {
public:
    explicit Text(std::string labels) : labels_(std::move(labels)) {}

    void family(const char *name, const char *type, const char *help) {
        name_ = name;
        fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help,
                       type);
    }
    template <typename Value>
    void sample(Value value, const std::string &more = {}) {
        fmt::format_to(std::back_inserter(text_), "{}{{{}{}}} {}\n", name_, labels_, more,
                       number(value));
    }
    template <typename Value>
    void one(const char *name, const char *type, const char *help, Value value) {
        family(name, type, help);
        sample(value);
    }
    std::string take() { return std::move(text_); }

private:
    std::string labels_;
    std::string text_;
    const char *name_ = "";
};

void append_engine(Text &text, const EngineCounts &counts) {
    const vescomm_fsdp_counters_t &c = counts.counters;
    text.one("vescomm_fsdp_broken", "gauge", "1 when the engine is broken until a reset.",
             counts.broken ? 1 : 0);
    text.one("vescomm_fsdp_steps_total", "counter", "Steps that were not skipped.", c.steps);
    text.one("vescomm_fsdp_skipped_steps_total", "counter",
             "Steps that were skipped because a gradient was or became not finite.", c.skipped);
    text.one("vescomm_fsdp_deviations_total", "counter",
             "Micro-batches that deviated from the declared or recorded order.", c.deviations);
    text.one("vescomm_fsdp_gathers_total", "counter", "Gathers of units.", c.gathers);
    text.one("vescomm_fsdp_gathered_bytes_total", "counter",
             "Bytes of parameters that this rank needed of other ranks, as they are sent.",
             c.gather_bytes);
    text.one("vescomm_fsdp_reduced_bytes_total", "counter",
             "Bytes of gradients that this rank gave to other ranks, as they are sent.",
             c.reduce_bytes);
    text.one("vescomm_fsdp_replica_bytes_total", "counter",
             "Bytes of gradient shards that this rank contributed to sums over replicas.",
             c.replica_bytes);
    text.one("vescomm_fsdp_allocated_bytes", "gauge", "Memory of the engine on this rank.",
             c.allocated_bytes);
    text.one("vescomm_fsdp_exposed_seconds_total", "counter",
             "Seconds in functions of the engine, without optimizers and norms.",
             c.exposed_seconds);
    text.one("vescomm_fsdp_optimizer_seconds_total", "counter", "Seconds in optimizers and norms.",
             c.optimizer_seconds);
    text.one("vescomm_fsdp_step_seconds", "gauge",
             "Seconds of the last step, computation of the program included.", counts.last.seconds);
    text.one("vescomm_fsdp_gradient_norm", "gauge",
             "Norm of the gradients of the last step before clipping.", counts.last.norm);
}

void append_units(Text &text, const EngineCounts &counts) {
    const auto label = [&](std::size_t unit) {
        return fmt::format(",unit=\"{}\"", escape(counts.unit_names[unit]));
    };
    text.family("vescomm_fsdp_unit_gathers_total", "counter", "Gathers of a unit.");
    for (std::size_t unit = 0; unit < counts.units.size(); ++unit)
        text.sample(counts.units[unit].gathers, label(unit));
    text.family("vescomm_fsdp_unit_seconds_total", "counter",
                "Seconds in functions of the engine for a unit.");
    for (std::size_t unit = 0; unit < counts.units.size(); ++unit) {
        const vescomm_fsdp_unit_counters_t &c = counts.units[unit];
        const auto add = [&](const char *phase, double seconds) {
            text.sample(seconds, label(unit) + fmt::format(",phase=\"{}\"", phase));
        };
        add("forward", c.forward_seconds);
        add("backward", c.backward_seconds);
        add("explicit", c.explicit_seconds);
        add("update", c.update_seconds);
    }
    text.family("vescomm_fsdp_unit_wait_seconds_total", "counter",
                "Seconds in which the program waited for transfers of a unit.");
    for (std::size_t unit = 0; unit < counts.units.size(); ++unit) {
        text.sample(counts.units[unit].gather_wait_seconds, label(unit) + ",transfer=\"gather\"");
        text.sample(counts.units[unit].reduce_wait_seconds, label(unit) + ",transfer=\"reduce\"");
    }
}

}  // namespace

std::string metrics_text(const EngineCounts &counts) {
    Text text(fmt::format("rank=\"{}\",engine=\"{}\"", counts.rank, counts.engine));
    append_engine(text, counts);
    append_units(text, counts);
    return text.take();
}

}  // namespace vescomm::fsdp
