// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/engine.h"

#include <new>

#include "fsdp/engine/event_body.h"
#include "fsdp/engine/or_abort.h"
#include "fsdp/engine/transfers.h"
#include "fsdp/hash.h"
#include "fsdp/report/traffic.h"
#include "fsdp/spec/partners.h"

namespace vescomm::fsdp {

namespace {

// True if optimizers run on the host, for this rank's shards or for a copy of another rank's.
bool host_updates(const Model &model, const Shards &shards) {
    return !shards.on_device() || has_partner_copies(model.spec, model.plan.mesh);
}

}  // namespace

Engine::Engine(const Model &model, vescomm_comm_t *parent, Communicator world) try
    : model_(model),
      parent_(parent),
      rank_(world.rank()),
      streams_(model_.spec.options().memory == VESCOMM_FSDP_DEVICE
                   ? std::make_unique<device::Streams>()
                   : nullptr),
      shards_(Shards::of(model_.spec, model_.plan, rank_)),
      optimizer_(
          model_.spec, model_.plan, shards_, rank_,
          make_update_threads(
              host_updates(model_, shards_) ? model_.spec.options().update_threads : 1, world),
          shards_.on_device() ? streams_.get() : nullptr),
      states_(model_.plan, model_.unit_names),
      measures_(model_.unit_names),
      wiring_(std::make_unique<Wiring>(model_, shards_, streams_.get(), std::move(world), parent_,
                                       log_, measures_.counters, measures_.times)) {
    or_abort(wiring_->comms, [&] {
        if (has_partner_copies(model_.spec, model_.plan.mesh))
            copy_.emplace(model_.spec, model_.plan, shards_, rank_,
                          partner_distance(wiring_->comms.world()), optimizer_.threads(),
                          streams_.get());
        wiring_->comms.meet();
    });
    measures_.summary.begin(reading());
} catch (const std::exception &error) {
    abort_with(world, error);  // unless the wiring has taken it
}

void Engine::fail(Event event, std::uint64_t unit, vescomm_status_t status, const char *text) {
    // Other ranks learn of the failure even if there is no memory for its sentence.
    try {
        failure_.emplace(status, describe(event, unit, model_.unit_names) + ": " + text);
    } catch (const std::bad_alloc &) {
        failure_.reset();
    }
    if (wiring_) {
        wiring_->comms.abort(failure_ ? failure_->what() : "it is out of memory");
        if (wiring_->links) wiring_->links->end_broken();  // the trainer may wait for its streams
    }
    if (failure_) throw *failure_;
    throw std::bad_alloc();
}

void Engine::use_stream(void *stream) {
    if (streams_) return streams_->use(stream);
    if (stream != nullptr) refuse("a stream was given for host memory, which has none; pass NULL");
}

void Engine::begin(std::uint32_t flags) {
    require_values();
    event(Event::begin, no_unit, true, 0, [&] {
        log_.note(Argument::flags, flags);
        states_.begin(flags);
        wiring_->parameters.begin(states_.evaluation());
        if (!states_.evaluation()) wiring_->norm->begin(states_.last());
    });
}

void Engine::pre_forward(std::uint64_t unit) {
    require_values();
    event(Event::pre_forward, unit, true, 0, [&] {
        using Use = GatheredUnits::Use;
        const bool again = states_.pre_forward(unit);
        wiring_->parameters.open(unit, again ? Use::recomputation : Use::forward, log_.now());
    });
}

void Engine::post_forward(std::uint64_t unit) {
    event(Event::post_forward, unit, true, 0, [&] {
        states_.post_forward(unit);
        wiring_->parameters.close(unit);
        wiring_->comms.progress();
    });
}

void Engine::pre_backward(std::uint64_t unit) {
    require_values();
    event(Event::pre_backward, unit, true, 0, [&] {
        states_.pre_backward(unit);
        wiring_->parameters.open(unit, GatheredUnits::Use::backward, log_.now());
        const PhaseTimes::Scope reducing(measures_.times.phases(), &Phases::reduce);
        for (const std::size_t owner : model_.plan.needs[unit])
            if (model_.plan.trainable(owner)) wiring_->gradients->acquire(static_cast<int>(owner));
    });
}

void Engine::post_backward(std::uint64_t unit) {
    event(Event::post_backward, unit, true, 0, [&] {
        const std::vector<std::size_t> ready = states_.post_backward(unit);
        wiring_->parameters.close(unit);
        for (const std::size_t owner : model_.plan.needs[unit])
            if (model_.plan.trainable(owner))
                wiring_->gradients->end_writes(static_cast<int>(owner));
        for (const std::size_t owner : ready) send(owner);
        wiring_->comms.progress();
    });
}

void Engine::unshard(std::uint64_t unit) {
    require_values();
    event(Event::unshard, unit, true, 0, [&] {
        states_.unshard(unit);
        wiring_->parameters.start(unit, log_.now());
    });
}

void Engine::reshard(std::uint64_t unit) {
    event(Event::reshard, unit, true, 0, [&] {
        states_.reshard(unit);
        wiring_->parameters.close(unit);
    });
}

const Parameter &Engine::require_parameter(std::uint64_t id) const {
    const auto &parameters = model_.spec.parameters();
    if (id >= parameters.size())
        refuse("there is no parameter {}; there are {}, counted from 0", id, parameters.size());
    if (parameters[id].ignored())
        refuse("parameter \"{}\" is ignored and has no memory", model_.spec.full_name(id));
    return parameters[id];
}

const Parameter &Engine::require_gradient(std::uint64_t id) const {
    const Parameter &parameter = require_parameter(id);
    if (parameter.frozen())
        refuse("parameter \"{}\" is frozen and has no gradient", model_.spec.full_name(id));
    if (!states_.in_backward(parameter.unit))
        refuse(
            "unit \"{}\" of parameter \"{}\" is not open for backward; call "
            "vescomm_fsdp_pre_backward() before",
            model_.unit_names[parameter.unit], parameter.name);
    return parameter;
}

vescomm_fsdp_view_t Engine::view_of(std::uint64_t id, vescomm_type_t type, void *data) const {
    const Parameter &parameter = model_.spec.parameters()[id];
    vescomm_fsdp_view_t view = vescomm_fsdp_view_init();
    view.type = type;
    view.data = data;
    view.elements = parameter.elements;
    view.shape = parameter.shape.data();
    view.strides = parameter.strides.data();
    view.dimensions = static_cast<std::int32_t>(parameter.shape.size());
    view.generation = values_.generation();
    return view;
}

vescomm_fsdp_view_t Engine::parameter(std::uint64_t id) {
    vescomm_fsdp_view_t view;
    event(Event::parameter, no_unit, false, 0, [&] {
        const Parameter &parameter = require_parameter(id);
        if (!states_.open(parameter.unit))
            refuse(
                "unit \"{}\" of parameter \"{}\" is not open; call vescomm_fsdp_pre_forward(), "
                "vescomm_fsdp_pre_backward() or vescomm_fsdp_unshard() before",
                model_.unit_names[parameter.unit], parameter.name);
        view = view_of(id, parameter.type, wiring_->parameters.data(id));
    });
    return view;
}

std::pair<vescomm_fsdp_view_t, vescomm_fsdp_gradient_mode_t> Engine::gradient(std::uint64_t id) {
    vescomm_fsdp_view_t view;
    vescomm_fsdp_gradient_mode_t mode = VESCOMM_FSDP_OVERWRITE;
    event(Event::gradient, no_unit, false, 0, [&] {
        const Parameter &parameter = require_gradient(id);
        const std::size_t owner = parameter.tied_to.value_or(id);
        GradientMemory &slots = *wiring_->gradients;
        view = view_of(id, model_.spec.gradient_type(parameter), slots.data(owner));
        mode = slots.begin_write(owner);
    });
    return {view, mode};
}

void Engine::push_gradient(std::uint64_t id, const void *data, vescomm_type_t type) {
    const auto &parameters = model_.spec.parameters();
    if (data == nullptr && id < parameters.size() && parameters[id].elements > 0)
        refuse("data is NULL for the {} elements of parameter \"{}\"", parameters[id].elements,
               model_.spec.full_name(id));
    event(Event::push_gradient, no_unit, false, 0, [&] {
        const Parameter &parameter = require_gradient(id);
        const std::size_t owner = parameter.tied_to.value_or(id);
        wiring_->gradients->push(owner, data, type);
    });
}

void Engine::send(std::size_t unit) {
    wiring_->gradients->send(static_cast<int>(unit), log_.now());
    const std::uint64_t bytes = reduce_bytes(model_.plan, unit, model_.plan.mesh.position(rank_));
    measures_.counters.reduce_bytes += bytes;
    measures_.times.units()[unit].reduce_bytes += bytes;
}

void Engine::begin_backward() {
    event(Event::begin_backward, no_unit, true, 0, [&] { states_.begin_backward(); });
}

void Engine::finish_backward() {
    event(Event::finish_backward, no_unit, true, 0, [&] {
        for (const std::size_t unit : states_.finish_backward()) send(unit);
        wiring_->parameters.end();
        wiring_->gradients->finish(states_.last());
        if (states_.last()) {
            sum_over_replicas();
            sum_replicated();
            wiring_->norm->finish();
        }
        gradients_ = {};
    });
}

void Engine::sum_over_replicas() {
    if (model_.plan.mesh.replicas() == 1) return;
    sum_at_once(shards_.sharded_gradients().size_bytes(), &GradientMemory::sum_over_replicas);
}

// The sum runs over all ranks at once, also with several groups that shard: the shards of a group
// differ in size, and sums over replicas would be added in another order at each position.
void Engine::sum_replicated() {
    const std::uint64_t bytes = shards_.replicated_gradients().size_bytes();
    // No rank has replicated parameters, or all have the same.
    if (bytes > 0) sum_at_once(bytes, &GradientMemory::sum_replicated);
}

void Engine::sum_at_once(std::uint64_t bytes, void (GradientMemory::*sum)()) {
    Wiring &wiring = *wiring_;
    Transfers transfers(Transfer::replicas, 1, wiring.comms, measures_.times);
    transfers.begin(0, bytes);
    const auto waits = transfers.waits(0);
    wiring.watch.verify(wiring.watch.post(log_.now()));
    if (bytes == 0) return;
    (*wiring.gradients.*sum)();
    transfers.end(0);
    measures_.counters.replica_bytes += bytes;
}

void Engine::set_group(std::uint64_t group, const void *settings) {
    require_wiring();
    // All that can fail comes first: either all of the engine has the settings, or nothing.
    Group made = optimizer_.with_settings(group, settings);
    if (copy_) copy_->optimizer().set_group(group, Group(made));
    optimizer_.set_group(group, std::move(made));
    const auto &bytes = optimizer_.groups()[group].settings;
    log_.note(Event::set_group, no_unit, hash_of(bytes.data(), bytes.size(), group));
}

void Engine::reset() {
    if (streams_) streams_->check_device();
    const auto fail = [this](vescomm_status_t status, const char *text) {
        if (wiring_) wiring_->comms.abort(text);
        failure_.emplace(status, std::string("reset: ") + text);
        throw *failure_;
    };
    try {
        rewire();
    } catch (const Failure &error) {
        fail(error.status, error.what());
    } catch (const Error &error) {
        fail(error.status(), error.what());
    } catch (const std::bad_alloc &) {
        fail(VESCOMM_ERROR_OUT_OF_MEMORY, "an allocation failed");
    } catch (const std::exception &error) {
        fail(VESCOMM_ERROR_INTERNAL, error.what());
    }
}

void Engine::rewire() {
    if (parent_ == nullptr)
        refuse("ranks of the engine have failed; call vescomm_fsdp_recover() instead");
    if (wiring_ && !failure_) wiring_->comms.abort("vescomm_fsdp_reset() began the step again");
    wiring_.reset();
    failure_.reset();
    states_.reset();
    gradients_ = {};
    log_ = {};
    Communicator world = make_world(parent_);
    wiring_ = std::make_unique<Wiring>(model_, shards_, streams_.get(), std::move(world), parent_,
                                       log_, measures_.counters, measures_.times);
    catch_up(wiring_->comms.world());
}

void Engine::progress() {
    event(Event::progress, no_unit, false, 0, [&] {
        wiring_->comms.progress();
        wiring_->parameters.advance();
    });
}

void Engine::wait_stream(void *stream) {
    if (!streams_) return use_stream(stream);
    device::refuse_captured(static_cast<device::cuda::Stream>(stream));
    event(Event::wait_stream, no_unit, false, 0,
          [&] { wiring_->links->wait(static_cast<device::cuda::Stream>(stream)); });
}

void Engine::require_wiring() const {
    if (failure_) throw *failure_;
    // There was no memory for the failure of a reset.
    if (!wiring_) throw std::bad_alloc();
}

void Engine::refuse_in_callback() const {
    if (in_callback_)
        refuse(
            "an optimizer, or the function that sets initial values, called it while the engine "
            "was calling that; only functions that read the engine, and vescomm_fsdp_progress(), "
            "are permitted there");
}

vescomm_comm_t *Engine::comm() {
    if (!wiring_) require_wiring();
    return wiring_->comms.world().get();
}

}  // namespace vescomm::fsdp
