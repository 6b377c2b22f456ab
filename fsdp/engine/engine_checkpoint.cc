// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Saves and loads of an engine. Zone: set-up.
#include "fsdp/engine/engine_checkpoint.h"

#include <bit>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "fsdp/checkpoint/comm_agreement.h"
#include "fsdp/checkpoint/load.h"
#include "fsdp/checkpoint/report.h"
#include "fsdp/engine/converted_pieces.h"
#include "fsdp/engine/engine.h"
#include "fsdp/engine/event_body.h"
#include "fsdp/engine/load_selection.h"
#include "fsdp/hash.h"
#include "fsdp/spec/group.h"

namespace vescomm::fsdp {

namespace {

// The extra of the engine, which rank 0 saves: the number of steps, in decimal digits.
constexpr const char *steps_extra = "engine.steps";
constexpr std::int64_t max_steps_bytes = 20;

std::string user_extra(int rank) {
    return "user." + std::to_string(rank);
}

// A rank that ends is detected at once, so this only limits how long a slow disk may take.
constexpr double seconds_of_a_day = 86400;

// Ranks agree over a communicator of its own: the trainer goes on while a save runs. Timeout 0:
// that of the parent.
std::unique_ptr<checkpoint::Agreement> make_agreement(vescomm_comm_t *parent,
                                                      double timeout_seconds) {
    vescomm_comm_options_t options = vescomm_comm_options_init();
    options.timeout_seconds = timeout_seconds;
    vescomm_comm_t *made = nullptr;
    check(vescomm_comm_dup(parent, &options, &made));
    return std::make_unique<checkpoint::CommAgreement>(std::shared_ptr<vescomm_comm_t>(
        made, [](vescomm_comm_t *comm) { vescomm_comm_free(comm); }));
}

// Throws on all ranks if they name different folders, or keep different numbers of saves.
void require_same(const Communicator &world, const std::string &folder, int keep) {
    struct Arguments {
        std::uint64_t folder;  // hash
        std::int64_t keep;
    };
    const Arguments mine{hash_of(folder.data(), folder.size()), keep};
    std::vector<Arguments> all(static_cast<std::size_t>(world.ranks()));
    check(vescomm_all_gather(world.get(), &mine, all.data(), sizeof mine / 8, VESCOMM_U64, nullptr,
                             nullptr, nullptr));
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank].folder != all[0].folder)
            throw Failure(VESCOMM_ERROR_MISMATCH,
                          fmt::format("folder differs between ranks 0 and {}; give the same on "
                                      "every rank",
                                      rank));
        if (all[rank].keep != all[0].keep)
            throw Failure(VESCOMM_ERROR_MISMATCH,
                          fmt::format("keep is {} on rank 0 and {} on rank {}; give the same on "
                                      "every rank",
                                      all[0].keep, all[rank].keep, rank));
    }
}

std::int64_t parse_steps(const std::optional<std::string> &text) {
    std::int64_t steps = -1;
    if (text) std::from_chars(text->data(), text->data() + text->size(), steps);
    // Steps are counted on from here, and must not overflow.
    constexpr std::int64_t max_steps = std::int64_t{1} << 62;
    if (!text || steps < 0 || steps > max_steps || std::to_string(steps) != *text)
        refuse("the checkpoint has no number of steps; it was not saved by an engine");
    return steps;
}

// A checkpoint of another model or of other optimizers may have all tensors of this one.
void require_no_other_tensors(const checkpoint::Catalogue &catalogue,
                              const std::set<LoadSelection::Key> &own, const std::string &save) {
    for (const auto &[key, stored] : catalogue.tensors())
        if (!own.contains(key))
            refuse(
                "the checkpoint {} has {}, and this engine does not: the model, the frozen "
                "parameters or the optimizers are not those of the save",
                save, checkpoint::describe(stored.tensor));
}

// The bytes of the program of all ranks that saved.
std::vector<std::string> read_extras(checkpoint::Checkpoint &opened) {
    constexpr std::size_t max_bytes = std::size_t{4} << 30;
    std::vector<std::string> extras;
    std::size_t bytes = 0;
    for (int rank = 0; rank < opened.catalogue().ranks(); ++rank) {
        extras.push_back(opened.extra(user_extra(rank), checkpoint::max_extra_bytes).value_or(""));
        bytes += extras.back().size();
        if (bytes > max_bytes)
            refuse("the checkpoint has more than {} bytes of the program of its ranks", max_bytes);
    }
    return extras;
}

}  // namespace

namespace {

// `replicated`: also pieces of replicated parameters.
std::vector<ShardPiece> make_pieces(const Model &model, const Shards &shards, int rank,
                                    bool replicated) {
    std::vector<ShardPiece> all;
    const int position = model.plan.mesh.position(rank);
    for (std::size_t index = 0; index < model.plan.buckets.size(); ++index) {
        const Bucket &bucket = model.plan.buckets[index];
        if (bucket.replicated && !replicated) continue;
        for (const auto &piece : bucket.pieces(position)) {
            const Parameter &parameter = model.spec.parameters()[piece.parameter];
            const std::string name = model.spec.full_name(piece.parameter);
            const auto add = [&](checkpoint::Tensor tensor, std::int64_t first, std::int64_t count,
                                 void *array, std::int64_t offset) {
                const std::size_t bytes =
                    static_cast<std::size_t>(offset) * vescomm_type_get_bytes(tensor.type);
                all.push_back(
                    {std::move(tensor), first, count, static_cast<std::byte *>(array) + bytes});
            };
            add({name, master_role, parameter.whole_shape(), bucket.master_type}, piece.first,
                piece.elements, shards.master(index).data, piece.offset);
            if (!bucket.trainable || !parameter.group) continue;
            const Group &group = model.spec.groups()[*parameter.group];
            const std::int64_t block = group.block_elements;
            for (std::size_t state = 0; state < group.states.size(); ++state) {
                const Group::State &one = group.states[state];
                const std::string role = role_of_state(one, block);
                void *array = shards.state(index, state);
                if (one.per_block)
                    add({name, role, parameter.shape_of_blocks(block), one.type},
                        blocks_before(piece.first, piece.rows * piece.columns, block),
                        blocks_of(piece, block), array, piece.block);
                else
                    add({name, role, parameter.whole_shape(), one.type}, piece.first,
                        piece.elements, array, piece.offset);
            }
        }
    }
    return all;
}

// Every rank has replicated parameters, and the first one saves them.
std::vector<ShardPiece> saved_pieces(const Model &model, const Shards &shards, int rank) {
    return make_pieces(model, shards, rank, rank == 0);
}

}  // namespace

std::vector<ShardPiece> shard_pieces(const Model &model, const Shards &shards, int rank) {
    return make_pieces(model, shards, rank, true);
}

std::vector<checkpoint::Tensor> empty_tensors(const Model &model) {
    std::vector<checkpoint::Tensor> tensors;
    for (std::size_t id = 0; id < model.spec.parameters().size(); ++id) {
        const Parameter &parameter = model.spec.parameters()[id];
        if (parameter.stored() && parameter.elements == 0)
            tensors.push_back({model.spec.full_name(id), master_role, parameter.whole_shape(),
                               model.spec.options().master_type});
    }
    return tensors;
}

std::unique_ptr<checkpoint::SaveJob> Engine::save(const std::string &folder, std::string_view extra,
                                                  int keep) {
    require_values();
    // A load would look for this save in the folder above.
    if (!checkpoint::split_path(folder).save.empty())
        refuse("the folder {} has the name of a save; choose another name, or its parent",
               checkpoint::in_quotes(folder));
    std::unique_ptr<checkpoint::Agreement> agreement;
    std::optional<device::Mirror> mirrored;
    event(Event::save, no_unit, true, 0, [&] {
        states_.require_closed("vescomm_fsdp_save()");
        wiring_->watch.verify(wiring_->watch.post(log_.now()));
        require_same(wiring_->comms.world(), folder, keep);
        mirrored.emplace(mirror());
        agreement = make_agreement(parent_, seconds_of_a_day);
    });
    const auto contents = [&] {
        checkpoint::SaveJob::Contents made;
        // Replicas of the first shard group have the same values.
        if (model_.plan.mesh.group(rank_) == 0)
            for (ShardPiece &piece : saved_pieces(model_, mirrored->shards(), rank_))
                made.pieces.push_back(
                    {std::move(piece.tensor), piece.first, piece.count, piece.data});
        checkpoint::check_extra_bytes(extra.size(), rank_);
        made.extras.push_back({user_extra(rank_), std::string(extra)});
        if (rank_ > 0) return made;
        for (checkpoint::Tensor &tensor : empty_tensors(model_))
            made.pieces.push_back({std::move(tensor), 0, 0, nullptr});
        made.extras.push_back({steps_extra, std::to_string(optimizer_.steps())});
        return made;
    };
    checkpoint::SaveOptions options;
    if (keep != 0) options.keep = keep;
    return std::make_unique<checkpoint::SaveJob>(folder, contents, std::move(agreement), options);
}

struct Engine::Load {
    double timeout_seconds;  // see load_within()
    const std::string &path;
    std::uint64_t detail;  // a hash of the other arguments
    const char *what;  // begins errors, before the save
    bool steps;  // reads the number of steps, too
    // Returns the tensors to load, or throws. `save`: its path in quotes.
    std::function<LoadSelection(const checkpoint::Catalogue &, const std::string &save)> select;
};

LoadSelection Engine::load_selected(const Load &load) {
    std::unique_ptr<checkpoint::Agreement> agreement;
    std::optional<device::Mirror> mirrored;
    event(Event::load, no_unit, true, load.detail, [&] {
        states_.require_closed("vescomm_fsdp_load()");
        drop_gradients();
        wiring_->watch.verify(wiring_->watch.post(log_.now()));
        require_same(wiring_->comms.world(), load.path, 0);
        wiring_->parameters.forget();
        mirrored.emplace(mirror());
        agreement = make_agreement(parent_, load.timeout_seconds);
    });
    // An error is the same on all ranks, and does not break the engine: another folder may be
    // loaded.
    checkpoint::SavePath from = checkpoint::split_path(load.path);
    if (from.save.empty()) from.save = checkpoint::agree_on_latest(from.folder, *agreement);
    const std::string save = checkpoint::in_quotes(from.folder + "/" + from.save);

    LoadSelection selection;
    std::optional<checkpoint::Checkpoint> opened;
    std::vector<checkpoint::WantedPiece> wanted;
    std::vector<ConvertedPiece> converted;  // masters of another type
    std::int64_t steps = optimizer_.steps();
    std::vector<std::string> extras;
    const auto want = [&](checkpoint::Tensor tensor, std::int64_t first, std::int64_t count,
                          void *data) {
        if (!selection.loaded.contains({tensor.role, tensor.name})) return;
        const vescomm_type_t type = tensor.type;
        tensor.type = stored_type(opened->catalogue(), tensor);
        opened->catalogue().find(tensor, load.what + save);
        if (tensor.type != type)
            converted.push_back({{std::move(tensor), first, count, data}, type});
        else wanted.push_back({std::move(tensor), first, count, data});
    };
    // Nothing changes if this fails.
    const auto open = [&] {
        opened.emplace(from);
        selection = load.select(opened->catalogue(), save);
        for (checkpoint::Tensor &tensor : empty_tensors(model_))
            want(std::move(tensor), 0, 0, nullptr);
        for (ShardPiece &piece : shard_pieces(model_, mirrored->shards(), rank_))
            want(std::move(piece.tensor), piece.first, piece.count, piece.data);
        if (load.steps) steps = parse_steps(opened->extra(steps_extra, max_steps_bytes));
        return std::string();
    };
    const auto read = [&] {
        // Files are verified before anything of a size that they claim is kept in memory.
        opened->read(wanted);
        read_converted(*opened, converted);
        extras = read_extras(*opened);
        return std::string();
    };
    checkpoint::run_on_all(*agreement, open, [] {});
    values_.begin_change();
    checkpoint::run_on_all(*agreement, read, [] {});
    optimizer_.set_steps(steps);
    loaded_.extras = std::move(extras);
    loaded_.report = selection.text();
    event(Event::load, no_unit, false, 0, [&] {
        mirrored->store();
        refresh_copy(mirrored->shards());
    });
    values_.set_complete();
    return selection;
}

void Engine::load(const std::string &path) {
    load_within(seconds_of_a_day, path);
}

void Engine::load_within(double timeout_seconds, const std::string &path) {
    const auto select = [&](const checkpoint::Catalogue &catalogue, const std::string &save) {
        LoadSelection all{tensors_of(model_.spec), {}, {}};
        require_no_other_tensors(catalogue, all.loaded, save);
        return all;
    };
    load_selected({timeout_seconds, path, 0, "loading ", true, select});
}

LoadSelection Engine::load_partial(const std::string &path, const PartialLoad &what) {
    require_values();  // those that are not loaded stay
    std::string arguments = fmt::format("{} {}", what.strict, what.states);
    for (const std::string &name : what.names) arguments += '\n' + name;
    const auto select = [&](const checkpoint::Catalogue &catalogue, const std::string &save) {
        return select_tensors(model_.spec, catalogue, what, "the checkpoint " + save);
    };
    return load_selected({seconds_of_a_day, path, hash_of(arguments.data(), arguments.size()),
                          "the checkpoint ", what.states, select});
}

const std::string &Engine::extra(int rank) const {
    // A save has the bytes of at least one rank, also if there are none.
    if (loaded_.extras.empty())
        refuse("there are no bytes of rank {}; no checkpoint was loaded: load one first", rank);
    if (rank < 0 || static_cast<std::size_t>(rank) >= loaded_.extras.size())
        refuse(
            "there are no bytes of rank {}; the checkpoint that was loaded has those of {} ranks",
            rank, loaded_.extras.size());
    return loaded_.extras[static_cast<std::size_t>(rank)];
}

}  // namespace vescomm::fsdp
