// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The engine: one object that receives the events of a trainer. It checks an event (UnitStates),
// notes it (EventLog), and lets the parts do the work: GatheredUnits, GradientSlots, Optimizer.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fsdp/checkpoint/save_job.h"
#include "fsdp/engine/device/mirror.h"
#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/event_log.h"
#include "fsdp/engine/event_times.h"
#include "fsdp/engine/load_selection.h"
#include "fsdp/engine/optimizer.h"
#include "fsdp/engine/partner_copy.h"
#include "fsdp/engine/redistribution.h"
#include "fsdp/engine/step_summary.h"
#include "fsdp/engine/unit_states.h"
#include "fsdp/engine/value_state.h"
#include "fsdp/engine/wiring.h"
#include "fsdp/error.h"

namespace vescomm::fsdp {

class Engine {
public:
    // `world`: of all ranks, of make_world(). `parent` must outlive the engine. Collective. When a
    // rank throws, the others throw too.
    Engine(const Model &model, vescomm_comm_t *parent, Communicator world);

    // The stream of the trainer's work, for the next events. Throws Failure if there is one and the
    // engine is on host memory, which has none.
    void use_stream(void *stream);

    // The functions of fsdp.h. They throw Failure.
    void initialise(vescomm_fsdp_fill_t fill, void *context);
    void begin(std::uint32_t flags);
    void pre_forward(std::uint64_t unit);
    void post_forward(std::uint64_t unit);
    void pre_backward(std::uint64_t unit);
    void post_backward(std::uint64_t unit);
    void unshard(std::uint64_t unit);
    void reshard(std::uint64_t unit);
    vescomm_fsdp_view_t parameter(std::uint64_t id);
    std::pair<vescomm_fsdp_view_t, vescomm_fsdp_gradient_mode_t> gradient(std::uint64_t id);
    void push_gradient(std::uint64_t id, const void *data, vescomm_type_t type);
    void begin_backward();
    void finish_backward();
    std::pair<double, bool> norm();
    void scale(double factor);
    void step(vescomm_fsdp_step_t &step);
    void set_group(std::uint64_t group, const void *settings);
    void reset();

    // engine_checkpoint.cc
    std::unique_ptr<checkpoint::SaveJob> save(const std::string &folder, std::string_view extra,
                                              int keep);
    void load(const std::string &path);
    LoadSelection load_partial(const std::string &path, const PartialLoad &what);
    // Lines about the last load.
    const std::string &load_report() const { return loaded_.report; }
    const std::string &extra(int rank) const;

    // engine_replicas.cc
    void check_replicas();

    // engine_recover.cc
    // Ends the step after a failure, and completes the last update of any survivor. Returns what
    // this rank has. Collective over `world`, the survivors of the ranks of this engine.
    Holding prepare_recovery(Communicator &world);
    // The specification for the survivors: this one, with the settings of the last step.
    Spec spec_for_survivors() const;
    // Takes the values of the engine before, whose survivors are the ranks of this engine.
    // Collective; every rank throws or none does.
    void take_over(const Engine &before, const Survivors &survivors);
    // As take_over(), with values of the latest checkpoint of a folder. Collective.
    void take_over_from(const Engine &before, const Survivors &survivors,
                        const std::string &folder);
    // Returns when all ranks have called it. Collective.
    void meet();
    // Frees the communicators of an engine of a recovery that did not end on all ranks.
    void disconnect(const char *reason) noexcept;
    std::uint64_t recoveries() const { return measures_.recoveries; }
    std::int64_t steps() const { return optimizer_.steps(); }
    const Model &model() const { return model_; }

    vescomm_fsdp_view_t shard(std::uint64_t unit, vescomm_fsdp_role_t role, std::uint32_t state);
    std::vector<vescomm_optimizer_piece_t> pieces(std::uint64_t unit) const;
    vescomm_fsdp_counters_t counters() const;
    vescomm_fsdp_unit_counters_t unit_counters(std::uint64_t unit) const;
    const vescomm_fsdp_step_summary_t &step_summary() const { return measures_.summary.last(); }
    // As text for a collector. `number`: of the engine in this process.
    std::string metrics(std::uint64_t number) const;
    void progress();
    // Waits for the work of a stream of the trainer, which need not be that of an event. No effect
    // on host memory.
    void wait_stream(void *stream);
    // The communicator of all ranks, until reset().
    vescomm_comm_t *comm();
    // Throws Failure while the engine calls a function of the program. Any thread may call it.
    void refuse_in_callback() const;

private:
    // Scale and norm of the gradients of a step.
    struct Gradients {
        double scale = 1;  // of vescomm_fsdp_scale()
        std::optional<double> norm;  // of unscaled gradients
    };

    // Counts of this engine and of those that it continues after a recovery.
    struct Measures {
        explicit Measures(std::span<const std::string> unit_names) : times(unit_names) {}

        vescomm_fsdp_counters_t counters = vescomm_fsdp_counters_init();
        EventTimes times;
        StepSummary summary;
        std::uint64_t recoveries = 0;
    };
    // The last load.
    struct LoadRecord {
        std::vector<std::string> extras;  // by rank of the job that saved
        std::string report;
    };

    struct Load;
    LoadSelection load_selected(const Load &load);
    // As load(). Ranks wait at most `timeout_seconds` for the slowest one to read its files; 0: the
    // timeout of the communicator.
    void load_within(double timeout_seconds, const std::string &path);
    // Runs an event. An error breaks the engine on all ranks. `noted`: ranks compare the event.
    template <typename Body>
    void event(Event event, std::uint64_t unit, bool noted, std::uint64_t detail, Body &&body);
    // Runs a part of an event. An error breaks the engine on all ranks, and is thrown.
    template <typename Body>
    void guarded(Event event, std::uint64_t unit, Body &&body);
    // Counters at the begin or the end of an event.
    struct EventReading {
        double time = 0;  // of vescomm_trace_get_seconds()
        EventTimes::Costs costs;  // so far; its exposed_seconds are not set
        double computed = 0;  // seconds in norms and optimizers
    };
    EventReading read_for_event() const noexcept;
    // Counts the time of an event that began at `begin`, and records its span.
    void add_time(Event event, std::uint64_t unit, const EventReading &begin) noexcept;
    [[noreturn]] void fail(Event event, std::uint64_t unit, vescomm_status_t status,
                           const char *text);
    // Begins a step again; see reset().
    void rewire();

    // Throws if the engine has failed.
    void require_wiring() const;
    // Throws also if masters and states of a rank are partly set or updated. All ranks know it.
    void require_values() const;
    void send(std::size_t unit);
    void sum_over_replicas();
    void sum_replicated();
    // Calls a sum of gradient shards of `bytes` bytes, which is not one of a unit.
    void sum_at_once(std::uint64_t bytes, void (GradientMemory::*sum)());
    double measure_norm();
    // The values change, for which no gradients exist.
    void drop_gradients();
    // Shards that the host can access.
    device::Mirror mirror() const {
        return {model_.plan, rank_, shards_, streams_.get(), streams_ ? &*wiring_->links : nullptr};
    }
    // Updates the masters of one unit after the other. `gathers`: starts to gather those that the
    // next forward opens first, each after its update.
    void apply(const Update &update, bool gathers);
    // Makes progress after the update of a unit, and gathers the unit if it is one of the first. An
    // error breaks the engine, so that the next event throws it: an update is never interrupted.
    void follow_update(std::size_t unit, std::span<const int> first) noexcept;
    StepSummary::Reading reading() const;
    // Completes the last update of any rank of `world`, and finds ranks whose values are not
    // complete. Collective.
    void catch_up(Communicator &world);
    // Makes the copy of another rank's shards again. `mine`: this rank's shards, as mirror() has
    // them.
    void refresh_copy(const Shards &mine);
    void take_counts(const Engine &before, std::int64_t generation);
    // Throws unless there is such a parameter with memory; returns its unit.
    const Parameter &require_parameter(std::uint64_t id) const;
    // Throws unless a gradient of the parameter may be written.
    const Parameter &require_gradient(std::uint64_t id) const;
    vescomm_fsdp_view_t view_of(std::uint64_t id, vescomm_type_t type, void *data) const;

    const Model model_;
    vescomm_comm_t *parent_;
    int rank_;
    std::unique_ptr<device::Streams> streams_;  // nullptr: host memory
    Shards shards_;
    Optimizer optimizer_;
    std::optional<PartnerCopy> copy_;  // of another rank's shards
    UnitStates states_;
    EventLog log_;
    Measures measures_;
    std::unique_ptr<Wiring> wiring_;
    std::optional<Failure> failure_;
    Gradients gradients_;
    ValueState values_;
    LoadRecord loaded_;
    std::atomic<bool> in_callback_ = false;  // functions of the program are being called
};

// Plans the model and compares the specification with those of the other ranks of `world`. Returns
// nothing if a rank has no plan or the specifications differ; `refusal` then has this rank's error,
// and all ranks have one. Collective.
std::optional<Model> agree_on_model(const Spec &spec, const Communicator &world,
                                    std::optional<Failure> &refusal);

}  // namespace vescomm::fsdp
