// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/recovery.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "fsdp/hash.h"

namespace vescomm::fsdp {

namespace {

template <typename Value>
std::vector<Value> gather(const Communicator &world, const Value &mine) {
    std::vector<Value> all(static_cast<std::size_t>(world.ranks()));
    check(vescomm_all_gather(world.get(), &mine, all.data(), sizeof(Value) / sizeof(std::uint64_t),
                             VESCOMM_U64, nullptr, nullptr, nullptr));
    return all;
}

// Makes all ranks use the engines of one recovery.
void agree_on_engine(Engines &engines, const Communicator &world) {
    const std::vector<std::uint64_t> all = gather(world, engines.current->recoveries());
    const std::uint64_t newest = *std::ranges::max_element(all);
    if (engines.current->recoveries() < newest) {
        if (!engines.prepared || engines.prepared->recoveries() != newest)
            throw Failure(VESCOMM_ERROR_INVALID_ARGUMENT,
                          "the engines of the survivors are of different recoveries; call "
                          "vescomm_fsdp_recover() for the same engine on every rank");
        engines.adopt_prepared();
    }
    engines.prepared.reset();
}

// Returns the model for the survivors, or the error of all ranks.
std::optional<Model> plan_for(const Spec &spec, const Spec &before, const Communicator &world,
                              std::optional<Failure> &refusal) {
    std::optional<Model> model = agree_on_model(spec, world, refusal);
    if (!model) return std::nullopt;
    try {
        require_same_values(before, model->spec);
    } catch (const Failure &error) {
        refusal = error;
        return std::nullopt;
    }
    return model;
}

// Loads the checkpoint. Returns an error that all ranks have.
std::optional<Failure> load_into(Engine &next, const Engine &before, const Survivors &survivors,
                                 const char *folder) {
    try {
        next.take_over_from(before, survivors, folder);
        return std::nullopt;
    } catch (const Failure &error) {
        return error;
    } catch (const Error &error) {
        return Failure(error.status(), error.what());
    }
}

}  // namespace

void Engines::adopt_prepared() {
    if (!unreported) unreported = {current->steps(), false};
    unreported->from_checkpoint |= prepared_from_checkpoint;
    current = std::move(prepared);
}

std::optional<Failure> recover(Engines &engines, vescomm_comm_t *survivors_comm, Communicator world,
                               const Spec *spec, vescomm_fsdp_recovery_t &recovery) {
    agree_on_engine(engines, world);
    Engine &before = *engines.current;
    Holding mine = before.prepare_recovery(world);
    if (recovery.folder != nullptr)
        mine.folder = hash_of(recovery.folder, std::strlen(recovery.folder), 1);
    const Survivors survivors(before.model().plan.mesh, gather(world, mine));
    const std::string different = survivors.different_folders();
    if (!different.empty()) return Failure(VESCOMM_ERROR_MISMATCH, different);
    const std::string missing = survivors.missing();
    if (!missing.empty() && recovery.folder == nullptr)
        return Failure(VESCOMM_ERROR_PEER_FAILED,
                       missing + "; set the folder of a checkpoint, or begin again");
    std::optional<Failure> refusal;
    const auto model = plan_for(spec != nullptr ? *spec : before.spec_for_survivors(),
                                before.model().spec, world, refusal);
    if (!model) return refusal;

    auto next = std::make_unique<Engine>(*model, survivors_comm, std::move(world));
    if (!missing.empty()) {
        refusal = load_into(*next, before, survivors, recovery.folder);
        if (refusal) {
            next->disconnect(refusal->what());  // a rank that reads files is not waited for
            return refusal;
        }
    } else {
        try {
            next->take_over(before, survivors);
        } catch (const std::exception &error) {
            next->disconnect(error.what());  // ends the waits of other ranks
            throw;
        }
    }
    const auto known = engines.unreported.value_or(Engines::Unreported{before.steps(), false});
    recovery.from_checkpoint = !missing.empty() || known.from_checkpoint ? 1 : 0;
    recovery.steps = next->steps();
    recovery.lost_steps = std::max<std::int64_t>(known.steps - next->steps(), 0);
    engines.prepared = std::move(next);
    engines.prepared_from_checkpoint = !missing.empty();
    try {
        engines.prepared->meet();
    } catch (const std::exception &error) {
        engines.prepared->disconnect(error.what());
        throw;
    }
    engines.current = std::move(engines.prepared);
    engines.unreported.reset();
    return std::nullopt;
}

}  // namespace vescomm::fsdp
