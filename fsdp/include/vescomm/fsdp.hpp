// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The FSDP engine for C++20: owners for the objects of fsdp.h, and exceptions for its statuses.
// Header only. fsdp.h documents each call at the C function whose name contains that of the C++
// function: vescomm_fsdp_begin() for Engine::begin(), vescomm_fsdp_get_counters() for
// Engine::counters(). vescomm_fsdp_export() has no wrapper.
//
//     vescomm::fsdp::Spec spec;
//     spec.preset("zero3");
//     const auto unit = spec.add_unit("block.0");
//     const auto weight = spec.add_parameter(unit, {.name = "weight", .shape = {1024, 1024}});
//     vescomm::fsdp::Engine engine(spec, comm);
//     engine.initialise([](std::uint64_t id, std::int64_t first, std::span<float> values,
//                          std::uint64_t key) { ... });
//     engine.begin(VESCOMM_FSDP_LAST);
//     engine.pre_forward(unit);   compute(engine.parameter<float>(weight));
//     engine.post_forward(unit);
//     engine.pre_backward(unit);   const auto [gradient, mode] = engine.gradient(weight);
//     engine.post_backward(unit);  // before it the program adds or overwrites, as mode says
//     engine.finish_backward();
//     engine.step();
//
// A failed call throws vescomm::Error. Owners can be moved, not copied.
#ifndef VESCOMM_FSDP_HPP
#define VESCOMM_FSDP_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "vescomm/fsdp.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp {
// The version of the symbols; invisible to callers.
inline namespace v0 {

// One parameter; see vescomm_fsdp_parameter_t.
struct ParameterSpec {
    std::string name;
    std::vector<std::int64_t> shape;
    vescomm_type_t type = VESCOMM_TYPE_DEFAULT;
    std::int32_t batch_dimensions = 0;
    std::int64_t block_rows = 0;
    std::int64_t block_elements = 0;
    std::uint32_t flags = 0;
    std::int64_t tied_to = -1;
    vescomm_type_t gather_type = VESCOMM_TYPE_DEFAULT;
};

// A description of a model and its sharding.
class Spec {
public:
    explicit Spec(const vescomm_fsdp_spec_options_t &options = vescomm_fsdp_spec_options_init()) {
        vescomm_fsdp_spec_t *made = nullptr;
        check(vescomm_fsdp_spec_create(&options, &made));
        owner_ = Owner(made);
    }

    void add_axis(const std::string &name, std::int32_t size, vescomm_fsdp_placement_t parameters,
                  vescomm_fsdp_placement_t gradients, vescomm_fsdp_placement_t optimizer) {
        check(vescomm_fsdp_add_axis(get(), name.c_str(), size, parameters, gradients, optimizer));
    }

    void preset(const std::string &name) { check(vescomm_fsdp_preset(get(), name.c_str())); }

    std::uint64_t add_unit(const std::string &name, std::uint32_t flags = 0) {
        std::uint64_t unit = 0;
        check(vescomm_fsdp_add_unit(get(), name.c_str(), flags, &unit));
        return unit;
    }

    std::uint64_t add_parameter(std::uint64_t unit, const ParameterSpec &parameter) {
        vescomm_fsdp_parameter_t plain = vescomm_fsdp_parameter_init();
        plain.name = parameter.name.c_str();
        plain.shape = parameter.shape.data();
        plain.dimensions = static_cast<std::int32_t>(parameter.shape.size());
        plain.type = parameter.type;
        plain.batch_dimensions = parameter.batch_dimensions;
        plain.block_rows = parameter.block_rows;
        plain.block_elements = parameter.block_elements;
        plain.flags = parameter.flags;
        plain.tied_to = parameter.tied_to;
        plain.gather_type = parameter.gather_type;
        std::uint64_t id = 0;
        check(vescomm_fsdp_add_parameter(get(), unit, &plain, &id));
        return id;
    }

    std::uint64_t add_group(std::span<const std::uint64_t> parameters,
                            const vescomm_optimizer_kind_t *kind, const void *settings) {
        std::uint64_t group = 0;
        check(vescomm_fsdp_add_group(get(), parameters.data(), parameters.size(), kind, settings,
                                     &group));
        return group;
    }

    // `rank`: -1 for the rank with the largest peak_bytes. `node_ranks`: ranks of a node; 0: all.
    vescomm_fsdp_report_t report(std::int32_t ranks, std::int32_t rank = -1,
                                 std::int32_t micro_batches = 1,
                                 std::int32_t node_ranks = 0) const {
        vescomm_fsdp_report_t report = vescomm_fsdp_report_init();
        report.rank = rank;
        report.micro_batches = micro_batches;
        report.node_ranks = node_ranks;
        check(vescomm_fsdp_report(get(), ranks, &report));
        return report;
    }

    // `nodes`: for each rank a number that identifies its node. `comm`: a communicator of the
    // ranks; nullptr: there is none yet.
    vescomm_fsdp_report_t report_on(std::span<const std::int32_t> nodes, std::int32_t rank = -1,
                                    std::int32_t micro_batches = 1,
                                    const Communicator *comm = nullptr) const {
        vescomm_fsdp_report_t report = vescomm_fsdp_report_init();
        report.rank = rank;
        report.micro_batches = micro_batches;
        report.nodes = nodes.data();
        if (comm != nullptr) report.comm = comm->get();
        check(vescomm_fsdp_report(get(), static_cast<std::int32_t>(nodes.size()), &report));
        report.nodes = nullptr;  // borrowed, as comm
        report.comm = nullptr;
        return report;
    }

    // A preset for `ranks` ranks, `node_ranks` of them on each node, with `memory_bytes` each.
    // `report`: of the preset; its rank and micro_batches are arguments.
    vescomm_fsdp_recommendation_t recommend(std::int32_t ranks, std::int32_t node_ranks,
                                            std::uint64_t memory_bytes,
                                            vescomm_fsdp_report_t *report = nullptr) const {
        vescomm_fsdp_recommendation_t result = vescomm_fsdp_recommendation_init();
        check(vescomm_fsdp_recommend(get(), ranks, node_ranks, memory_bytes, &result, report));
        return result;
    }

    vescomm_fsdp_spec_t *get() const noexcept { return owner_.get(); }

private:
    using Owner = detail::Owner<vescomm_fsdp_spec_t, vescomm_fsdp_spec_free>;
    Owner owner_;
};

// Work in the background.
class Job {
public:
    // No work; only get(), assignment and destruction are permitted.
    Job() = default;
    // Takes ownership.
    explicit Job(vescomm_job_t *job) noexcept : owner_(job) {}

    // Returns true when the job is complete.
    bool test() {
        const vescomm_status_t status = vescomm_job_test(owner_.get());
        check(status);
        return status == VESCOMM_OK;
    }
    void wait(double timeout_seconds) { check(vescomm_job_wait(owner_.get(), timeout_seconds)); }
    vescomm_job_t *get() const noexcept { return owner_.get(); }

private:
    using Owner = detail::Owner<vescomm_job_t, vescomm_job_free>;
    Owner owner_;
};

// Shards, slots and requests of one model. The destructor is collective, unless the engine has
// failed.
class Engine {
public:
    // The handle of `comm`, which may move to another owner, must outlive the engine, or exist
    // until recover() succeeds. comm = comm.shrink() frees it too early: give the survivors a name
    // of their own, recover, and free `comm` then.
    Engine(const Spec &spec, const Communicator &comm) {
        vescomm_comm_t *const comms[] = {comm.get()};
        vescomm_fsdp_t *made = nullptr;
        check(vescomm_fsdp_create(spec.get(), comms, 1, &made));
        owner_ = Owner(made);
    }

    // Sets elements [first, first + values.size()) of a parameter. May throw.
    using Fill = std::function<void(std::uint64_t parameter, std::int64_t first,
                                    std::span<float> values, std::uint64_t key)>;
    void initialise(const Fill &fill) {
        struct Context {
            const Fill &fill;
            std::exception_ptr thrown;
        } context{fill, nullptr};
        const auto call = [](void *opaque, std::uint64_t parameter, std::int64_t first,
                             std::int64_t count, float *values, std::uint64_t key) -> int {
            auto &with = *static_cast<Context *>(opaque);
            try {
                with.fill(parameter, first, {values, static_cast<std::size_t>(count)}, key);
                return 0;
            } catch (...) {
                with.thrown = std::current_exception();
                return 1;
            }
        };
        const vescomm_status_t status = vescomm_fsdp_initialise(get(), call, &context);
        if (context.thrown) std::rethrow_exception(context.thrown);
        check(status);
    }

    void begin(std::uint32_t flags = 0) { check(vescomm_fsdp_begin(get(), flags)); }
    // `stream`: of the trainer's work, on device memory.
    void pre_forward(std::uint64_t unit, void *stream = nullptr) {
        check(vescomm_fsdp_pre_forward(get(), unit, stream));
    }
    void post_forward(std::uint64_t unit, void *stream = nullptr) {
        check(vescomm_fsdp_post_forward(get(), unit, stream));
    }
    void pre_backward(std::uint64_t unit, void *stream = nullptr) {
        check(vescomm_fsdp_pre_backward(get(), unit, stream));
    }
    void post_backward(std::uint64_t unit, void *stream = nullptr) {
        check(vescomm_fsdp_post_backward(get(), unit, stream));
    }
    void unshard(std::uint64_t unit, void *stream = nullptr) {
        check(vescomm_fsdp_unshard(get(), unit, stream));
    }
    void reshard(std::uint64_t unit, void *stream = nullptr) {
        check(vescomm_fsdp_reshard(get(), unit, stream));
    }
    void begin_backward() { check(vescomm_fsdp_begin_backward(get())); }
    void finish_backward(void *stream = nullptr) {
        check(vescomm_fsdp_finish_backward(get(), stream));
    }

    vescomm_fsdp_view_t parameter(std::uint64_t id) {
        vescomm_fsdp_view_t view = vescomm_fsdp_view_init();
        check(vescomm_fsdp_parameter(get(), id, &view));
        return view;
    }
    // T is a type of the size of the elements, such as float for f32 and std::uint16_t for bf16.
    template <typename T>
    std::span<const T> parameter(std::uint64_t id) {
        return span<const T>(parameter(id));
    }

    std::pair<vescomm_fsdp_view_t, vescomm_fsdp_gradient_mode_t> gradient(std::uint64_t id) {
        vescomm_fsdp_view_t view = vescomm_fsdp_view_init();
        vescomm_fsdp_gradient_mode_t mode = VESCOMM_FSDP_OVERWRITE;
        check(vescomm_fsdp_gradient(get(), id, &view, &mode));
        return {view, mode};
    }

    void push_gradient(std::uint64_t id, const void *data, vescomm_type_t type,
                       void *stream = nullptr) {
        check(vescomm_fsdp_push_gradient(get(), id, data, type, stream));
    }

    // Returns the norm, and whether all gradients are finite.
    std::pair<double, bool> norm() {
        double norm = 0;
        std::int32_t finite = 0;
        check(vescomm_fsdp_norm(get(), &norm, &finite));
        return {norm, finite != 0};
    }
    void scale(double factor) { check(vescomm_fsdp_scale(get(), factor)); }

    // Returns `step` with the results.
    vescomm_fsdp_step_t step(vescomm_fsdp_step_t step = vescomm_fsdp_step_init(),
                             void *stream = nullptr) {
        check(vescomm_fsdp_step(get(), &step, stream));
        return step;
    }
    void set_group(std::uint64_t group, const void *settings) {
        check(vescomm_fsdp_set_group(get(), group, settings));
    }
    void reset() { check(vescomm_fsdp_reset(get())); }
    void check_replicas() { check(vescomm_fsdp_check_replicas(get())); }

    // The handle of `survivors`, which may move to another owner, must outlive the engine from here
    // on. Returns `recovery` with the results.
    vescomm_fsdp_recovery_t recover(
        const Communicator &survivors,
        vescomm_fsdp_recovery_t recovery = vescomm_fsdp_recovery_init()) {
        check(vescomm_fsdp_recover(get(), survivors.get(), &recovery));
        return recovery;
    }

    vescomm_fsdp_view_t shard(std::uint64_t unit, vescomm_fsdp_role_t role,
                              std::uint32_t state = 0) {
        vescomm_fsdp_view_t view = vescomm_fsdp_view_init();
        check(vescomm_fsdp_shard(get(), unit, role, state, &view));
        return view;
    }
    std::vector<vescomm_optimizer_piece_t> pieces(std::uint64_t unit) const {
        std::size_t count = 0;
        check(vescomm_fsdp_pieces(get(), unit, nullptr, 0, &count));
        std::vector<vescomm_optimizer_piece_t> pieces(count, vescomm_optimizer_piece_init());
        check(vescomm_fsdp_pieces(get(), unit, pieces.data(), count, &count));
        return pieces;
    }
    vescomm_fsdp_counters_t counters() const {
        vescomm_fsdp_counters_t counters = vescomm_fsdp_counters_init();
        check(vescomm_fsdp_get_counters(get(), &counters));
        return counters;
    }
    vescomm_fsdp_unit_counters_t unit_counters(std::uint64_t unit) const {
        vescomm_fsdp_unit_counters_t counters = vescomm_fsdp_unit_counters_init();
        check(vescomm_fsdp_get_unit_counters(get(), unit, &counters));
        return counters;
    }
    std::string metrics() const {
        std::size_t size = 0;
        check(vescomm_fsdp_get_metrics(get(), nullptr, 0, &size));
        std::string text(size, '\0');
        check(vescomm_fsdp_get_metrics(get(), text.data(), text.size(), &size));
        text.resize(size - 1);
        return text;
    }
    // Times and bytes of the last step.
    vescomm_fsdp_step_summary_t step_summary() const {
        vescomm_fsdp_step_summary_t summary = vescomm_fsdp_step_summary_init();
        check(vescomm_fsdp_get_step_summary(get(), &summary));
        return summary;
    }

    void progress() { check(vescomm_fsdp_progress(get())); }
    void wait_stream(void *stream) { check(vescomm_fsdp_wait_stream(get(), stream)); }
    // Owned by the engine; invalid after reset() and recover(), which replace it.
    vescomm_comm_t *comm() {
        vescomm_comm_t *comm = nullptr;
        check(vescomm_fsdp_get_comm(get(), &comm));
        return comm;
    }

    // Saves in the background, with bytes of this rank. keep: saves that remain in the folder;
    // 0: 2. Keep the job and wait for it: the destructor of a job cancels a save that has not
    // ended.
    [[nodiscard("a job that is destroyed cancels its save")]] Job save(
        const std::string &folder, std::span<const std::byte> extra = {}, std::int32_t keep = 0) {
        vescomm_fsdp_extra_t bytes = vescomm_fsdp_extra_init();
        bytes.keep = keep;
        bytes.data = extra.data();
        bytes.bytes = extra.size();
        vescomm_job_t *made = nullptr;
        check(vescomm_fsdp_save(get(), folder.c_str(), &bytes, &made));
        return Job(made);
    }
    void load(const std::string &folder) { check(vescomm_fsdp_load(get(), folder.c_str())); }
    // Loads some of the values, as `what` says. `names`: of units and parameters; empty: all.
    // Returns `what` with the results; load_report() has the names of tensors that were not loaded.
    vescomm_fsdp_partial_load_t load_partial(
        const std::string &folder, const std::vector<std::string> &names = {},
        vescomm_fsdp_partial_load_t what = vescomm_fsdp_partial_load_init()) {
        std::vector<const char *> pointers;
        for (const std::string &name : names) pointers.push_back(name.c_str());
        what.names = pointers.data();
        what.name_count = pointers.size();
        check(vescomm_fsdp_load_partial(get(), folder.c_str(), &what));
        what.names = nullptr;
        what.name_count = 0;
        return what;
    }
    std::string load_report() const {
        std::size_t size = 0;
        check(vescomm_fsdp_get_load_report(get(), nullptr, 0, &size));
        std::string text(size, '\0');
        check(vescomm_fsdp_get_load_report(get(), text.data(), text.size(), &size));
        text.resize(size - 1);
        return text;
    }
    // Returns the bytes of a rank of the job that saved.
    std::vector<std::byte> extra(std::int32_t rank) const {
        std::size_t bytes = 0;
        check(vescomm_fsdp_get_extra(get(), rank, nullptr, 0, &bytes));
        std::vector<std::byte> data(bytes);
        check(vescomm_fsdp_get_extra(get(), rank, data.data(), data.size(), &bytes));
        return data;
    }

    vescomm_fsdp_t *get() const noexcept { return owner_.get(); }

private:
    template <typename T>
    static std::span<T> span(const vescomm_fsdp_view_t &view) {
        if (sizeof(T) != vescomm_type_get_bytes(view.type))
            throw std::invalid_argument("a parameter of elements of " +
                                        std::to_string(vescomm_type_get_bytes(view.type)) +
                                        " bytes is seen as one of " + std::to_string(sizeof(T)) +
                                        " bytes; ask for its type");
        return {static_cast<T *>(view.data), static_cast<std::size_t>(view.elements)};
    }

    using Owner = detail::Owner<vescomm_fsdp_t, vescomm_fsdp_free>;
    Owner owner_;
};

}  // namespace v0
}  // namespace vescomm::fsdp

#endif
