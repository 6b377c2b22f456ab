// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Requests on fused buffers.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "comm/agree.h"
#include "comm/buffer_choice.h"
#include "comm/flight.h"
#include "comm/request.h"
#include "comm/schedule_check.h"
#include "execute/kernels.h"
#include "execute/match/signature.h"

namespace vescomm::internal {

namespace {

BufferProblem problem_of(const Communicator &comm, const Buffer *buffer,
                         const RequestOptions &options) {
    BufferProblem problem;
    problem.collective = options.collective;
    problem.nodes = comm.nodes();
    problem.root = options.root;
    problem.in_order = comm.reproducible();
    if (buffer != nullptr) {
        problem.cuts.assign(buffer->layout().cuts().begin(), buffer->layout().cuts().end());
        // An all_reduce has no shards: every rank sums an equal part.
        if (options.collective == Collective::all_reduce)
            cut_evenly(problem.elements(), comm.ranks(), problem.cuts);
        problem.per_node = buffer->per_node();
    }
    return problem;
}

// True: some rank has a source or an output array. The problem then assumes one on every rank; the
// other ranks use their shard of the buffer.
bool any_rank_has_array(Communicator &comm, const std::string &label,
                        const RequestOptions &options) {
    const bool takes_any = options.collective == Collective::all_gather_v ||
                           options.collective == Collective::reduce_scatter_v;
    if (!takes_any) return false;
    const bool mine = options.source != nullptr || options.output != nullptr;
    const auto all = comm.gather(label, mine ? "apart" : "in place", comm.deadline());
    return std::ranges::find(all, "apart") != all.end();
}

void require_aligned(const void *array, const char *name, const RequestOptions &options) {
    const std::size_t alignment = alignment_of(options.type);
    if (reinterpret_cast<std::uintptr_t>(array) % alignment != 0)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               std::string(name) + " is not aligned to " + std::to_string(alignment) +
                   " bytes, as arrays of " + name_of_type(options.type) + " must be");
}

void check_in_buffer(const Communicator &comm, const Buffer *buffer,
                     const RequestOptions &options) {
    vescomm::internal::check(comm, options, buffer != nullptr ? buffer->type() : options.type);
    if (options.source != nullptr && options.collective != Collective::all_gather_v)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options, "takes no source; leave it NULL");
    if (options.output != nullptr && options.collective != Collective::reduce_scatter_v)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options, "takes no output; leave it NULL");
    if (buffer == nullptr) return;
    if (reduces(options.collective) && buffer->per_node())
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "buffer \"" + buffer->name() +
                   "\" is one slab for each node, where ranks have nothing of their own to "
                   "combine; create it with one for each rank (VESCOMM_PER_RANK)");
    require_aligned(options.source, "source", options);
    require_aligned(options.output, "output", options);
    if (options.output != nullptr && !can_reduce(options.type, buffer->type())) {
        const auto own = buffer->type(), accumulator = accumulator_of(own);
        refuse(VESCOMM_ERROR_UNSUPPORTED, options,
               "the output is " + name_of_type(options.type) + "; it must be " + name_of_type(own) +
                   ", as the buffer is" +
                   (accumulator == own ? "" : ", or " + name_of_type(accumulator)));
    }
    if (options.source != nullptr && !can_convert(buffer->type(), options.type))
        refuse(VESCOMM_ERROR_UNSUPPORTED, options,
               "there is no conversion from a source of " + name_of_type(options.type) +
                   " to buffer \"" + buffer->name() + "\" of " + name_of_type(buffer->type()) +
                   "; f32 and f64 convert to and from every float");
}

// Returns nullptr if `array`, which holds a rank's shard, is the shard in the buffer itself.
// Refuses any other overlap with the buffer.
template <typename Array>
Array *array_apart(Array *array, const char *name, int rank, const Buffer &buffer,
                   const RequestOptions &options) {
    const Layout::Shard shard = buffer.layout().shard(rank);
    const auto at = reinterpret_cast<std::uintptr_t>(array);
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.at(0));
    const auto end = reinterpret_cast<std::uintptr_t>(buffer.at(buffer.layout().elements()));
    const auto bytes = static_cast<std::size_t>(shard.elements()) * size_of(options.type);
    if (array == nullptr || bytes == 0 || at >= end || at + bytes <= begin) return array;
    if (array == buffer.at(shard.begin) && options.type == buffer.type()) return nullptr;
    refuse(
        VESCOMM_ERROR_INVALID_ARGUMENT, options,
        std::string(name) + " overlaps buffer \"" + buffer.name() +
            "\" and is not this rank's shard in it, of the same type; give NULL for in place, or "
            "an array outside the buffer");
}

// The address of the shard in the buffer means in place, as NULL does.
RequestOptions resolve_in_place(int rank, const Buffer *buffer, RequestOptions options) {
    if (buffer == nullptr) return options;
    options.source = array_apart(options.source, "source", rank, *buffer, options);
    options.output = array_apart(options.output, "output", rank, *buffer, options);
    return options;
}

// Bytes that the ranks of this node write in a collective on the buffer.
std::uint64_t written_bytes(const Communicator &comm, const Buffer &buffer) {
    const auto locals = comm.nodes().members(comm.nodes().node_of(comm.rank())).size();
    const std::uint64_t one =
        static_cast<std::uint64_t>(buffer.layout().elements()) * size_of(buffer.type());
    return buffer.per_node() ? one : one * locals;
}

// The highest run number: the upper half of a flag.
constexpr std::uint64_t max_run = (std::uint64_t{1} << 32) - 1;

std::string quoted_name(const Buffer *buffer) {
    return buffer == nullptr ? std::string() : " of \"" + buffer->name() + "\"";
}

// A channel that the request gives back with its number of runs, which the next user continues.
class TakenChannel {
public:
    TakenChannel(Communicator &comm, Channel channel) : comm_(comm), channel_(channel) {}
    ~TakenChannel() {
        const std::uint64_t last = std::min(channel_.runs + runs, max_run);
        comm_.numbers().channels().give_back({channel_.number, static_cast<std::uint32_t>(last)});
    }
    TakenChannel(const TakenChannel &) = delete;
    TakenChannel &operator=(const TakenChannel &) = delete;

    const Channel &operator*() const { return channel_; }
    std::uint64_t runs = 0;  // of this user

private:
    Communicator &comm_;
    const Channel channel_;
};

// In the buffer, on a channel of the request.
class BufferPath final : public CollectivePath {
public:
    BufferPath(Communicator &comm, const AlgorithmEntry &algorithm, const AnyProblem &problem,
               const ElementBytes &bytes, std::shared_ptr<Buffer> buffer,
               std::unique_ptr<TakenChannel> channel, std::shared_ptr<PartialSums> partial)
        : CollectivePath(comm, algorithm, problem, bytes),
          buffer_(std::move(buffer)),
          channel_(std::move(channel)),
          partial_(std::move(partial)) {}

    Run next(const Operation &operation) override {
        Run run{.number = (**channel_).runs + operation.runs() + 1};
        if (buffer_ && buffer_->per_node()) run.releases = buffer_->memory().begin_gather();
        return run;
    }
    PartialSums *partial_sums() const noexcept override { return partial_.get(); }
    void end(std::uint64_t runs) noexcept override { channel_->runs = runs; }
    std::string object() const override { return quoted_name(buffer_.get()); }

private:
    const std::shared_ptr<Buffer> buffer_;  // nullptr: barrier
    const std::unique_ptr<TakenChannel> channel_;
    const std::shared_ptr<PartialSums> partial_;  // nullptr: there are none
};

// From the buffer to the buffer, through the staging buffer.
class StagedBufferPath final : public CollectivePath {
public:
    StagedBufferPath(Communicator &comm, const AlgorithmEntry &algorithm, const AnyProblem &problem,
                     const ElementBytes &bytes, std::shared_ptr<Buffer> buffer,
                     std::shared_ptr<StagingBuffer> staging)
        : CollectivePath(comm, algorithm, problem, bytes),
          buffer_(std::move(buffer)),
          staging_(std::move(staging)) {}

    Run next(const Operation &) override { return staging_->next(0); }
    std::string object() const override { return quoted_name(buffer_.get()); }

private:
    const std::shared_ptr<Buffer> buffer_;
    const std::shared_ptr<StagingBuffer> staging_;
};

// Binds a buffer as the arrays of its collective.
void bind_arrays(Bindings &bindings, const Problem &problem, const Buffer &buffer,
                 const RequestOptions &options) {
    const int rank = bindings.rank;
    const Piece whole{buffer.at(0), problem.elements()};
    const Piece shard{buffer.at(problem.begin(rank)), problem.size(rank)};
    const bool root = rank == problem.root;
    bindings.source.type = bindings.output.type = buffer.type();
    switch (problem.collective) {
        case Collective::all_gather_v:
            bindings.source.pieces = {shard};
            bindings.output.pieces = {whole};
            break;
        case Collective::reduce_scatter_v:
            bindings.source.pieces = {whole};
            bindings.output.pieces = {shard};
            break;
        case Collective::broadcast:
            (root ? bindings.source : bindings.output).pieces = {whole};
            break;
        case Collective::reduce:
            bindings.source.pieces = {whole};
            if (root) bindings.output.pieces = {whole};
            break;
        default:
            bindings.source.pieces = bindings.output.pieces = {whole};
    }
    // Sources are only read; the executor has one kind of pointer.
    if (options.source != nullptr) {
        bindings.source.type = options.type;
        bindings.source.pieces[0].data =
            static_cast<std::byte *>(const_cast<void *>(options.source));
    }
    if (options.output != nullptr) {
        bindings.output.type = options.type;
        bindings.output.pieces[0].data = static_cast<std::byte *>(options.output);
    }
}

// Binds the buffer, and the arrays that the caller gave instead of its shard.
void bind_buffer(Bindings &bindings, const Problem &problem, const Communicator &comm,
                 const Buffer *buffer, const RequestOptions &options) {
    const std::int64_t shard = problem.cuts.empty() ? 0 : problem.size(comm.rank());
    if (buffer != nullptr) {
        bindings.buffer = {.type = buffer->type(),
                           .memory = buffer->memory().id(),
                           .mapping = buffer->memory().mapping(),
                           .offset_bytes = buffer->offset_bytes()};
        bindings.release = {buffer->memory().release_channel(), 0};
        bindings.streaming = written_bytes(comm, *buffer) > last_level_cache;
    }
    // Sources are only read; the executor has one kind of pointer.
    for (const auto &[its, given] :
         {std::pair{&bindings.source, const_cast<void *>(options.source)},
          std::pair{&bindings.output, options.output}}) {
        auto *data = static_cast<std::byte *>(given);
        const bool in_buffer = data == nullptr && buffer != nullptr && !problem.cuts.empty();
        its->type = in_buffer ? buffer->type() : options.type;
        its->pieces = {{in_buffer ? buffer->at(problem.begin(comm.rank())) : data, shard}};
    }
}

// The highest number of any rank. Collective.
std::uint64_t highest(Communicator &comm, std::uint64_t mine, const std::string &label,
                      Deadline deadline) {
    const auto numbers =
        comm.gather(label, {reinterpret_cast<const char *>(&mine), sizeof mine}, deadline);
    std::uint64_t max = 0;
    for (const std::string &number : numbers) {
        std::uint64_t its = 0;
        std::memcpy(&its, number.data(), std::min(sizeof its, number.size()));
        max = std::max(max, its);
    }
    return max;
}

// Memory for partial sums, of the largest size that any rank needs. Requests on one memory share
// it. Collective.
std::shared_ptr<PartialSums> partial_memory(Communicator &comm, const Buffer *buffer,
                                            std::int64_t elements, const std::string &label,
                                            Deadline deadline) {
    const std::uint64_t max = highest(comm, static_cast<std::uint64_t>(elements), label, deadline);
    if (max == 0) return nullptr;
    return buffer->memory().shared_partial(max * size_of(accumulator_of(buffer->type())));
}

}  // namespace

std::unique_ptr<Request> Request::create(const std::shared_ptr<StagingBuffer> &staging,
                                         const std::shared_ptr<Buffer> &buffer,
                                         const Options &given) {
    const std::shared_ptr<Communicator> &comm = staging->comm();
    comm->check();
    if (buffer && &buffer->comm() != comm.get())
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, given,
               "buffer \"" + buffer->name() + "\" belongs to another communicator");
    check_in_buffer(*comm, buffer.get(), given);
    const RequestOptions options = resolve_in_place(comm->rank(), buffer.get(), given);
    const std::string label =
        "creation of " + std::string(name_of(options.collective)) + quoted_name(buffer.get());

    BufferProblem in_buffer = problem_of(*comm, buffer.get(), options);
    in_buffer.in_place = !any_rank_has_array(*comm, label, options);
    in_buffer.contributions_are_sums = buffer && contributions_are_sums(buffer->type(), options.op);
    const AlgorithmOverride forced = override_of(*comm, options);
    const std::vector<AnyProblem> variants = buffer_variants(
        in_buffer, buffer ? buffer->type() : VESCOMM_TYPE_DEFAULT, !forced.algorithm.empty());
    const ElementBytes bytes = buffer ? bytes_of(buffer->type()) : ElementBytes{};
    const Choice choice =
        select(variants, bytes, comm->machine(), forced.algorithm, forced.variable);
    const AnyProblem &chosen = variants[choice.variant];
    const Problem &problem = *chosen;
    const AlgorithmEntry &algorithm = *choice.algorithm;
    const bool staged = choice.variant > 0;
    if (checks_schedules && comm->rank() == 0) check_if_small(algorithm, chosen);

    const Deadline deadline = comm->deadline();
    const Description description = {
        {"the op", name_of_op(options.op)},
        {"the factor", fmt::format("{}", options.factor)},
        {"the root", std::to_string(options.root)},
        {"the buffer's memory", buffer ? std::to_string(buffer->memory().id()) : "none"},
        {"the buffer's offset_bytes", buffer ? std::to_string(buffer->offset_bytes()) : "none"},
        {"the buffer's type", buffer ? name_of_type(buffer->type()) : "none"},
        {"the hash of the buffer's layout",
         buffer ? fmt::format("{:016x}", buffer->layout().hash()) : "none"},
        {"the algorithm", std::string(algorithm.name)},
        {"the path of the data", staged ? "through the staging buffer" : "in the buffer"}};

    Bindings bindings = bindings_of(*comm, options);
    const std::size_t element = buffer ? size_of(buffer->type()) : 0;
    bindings.flight_word =
        flight_word(algorithm, buffer ? buffer->type() : VESCOMM_TYPE_DEFAULT, options.op,
                    static_cast<std::uint64_t>(problem.elements()) * element);
    // Either all ranks have the request, or none: a rank with it would wait for the others.
    const auto make = [&](std::unique_ptr<RequestPath> path) {
        std::unique_ptr<Request> request;
        agree(*comm, label, deadline, [&] {
            request.reset(
                new Request(comm, options, {}, std::move(path), algorithm, choice.why, bindings));
            return std::string();
        });
        return request;
    };
    if (staged) {
        require_same(*comm, label, deadline, description);
        staging->bind(bindings, algorithm, buffer->type());
        ObjectNumbers &numbers = comm->numbers();
        const std::uint64_t number = highest(*comm, numbers.proposed_request(), label, deadline);
        numbers.take_request(number);
        bindings.match.signature = Signature(problem, algorithm.name, buffer->type(), options.op,
                                             options.factor, digest_of_request(number))
                                       .bits();
        bind_arrays(bindings, problem, *buffer, options);
        return make(
            std::make_unique<StagedBufferPath>(*comm, algorithm, chosen, bytes, buffer, staging));
    }
    auto channel = std::make_unique<TakenChannel>(
        *comm, require_same_and_take_channel(*comm, label, deadline, description));
    bindings.channel = (**channel).number;
    bind_buffer(bindings, problem, *comm, buffer.get(), options);
    const std::int64_t partials = algorithm.make(chosen, comm->rank()).partial;
    std::shared_ptr<PartialSums> partial =
        partial_memory(*comm, buffer.get(), partials, label, deadline);
    if (partial)
        bindings.partial = {.type = accumulator_of(buffer->type()),
                            .memory = partial->memory->id(),
                            .mapping = partial->memory->mapping()};
    return make(std::make_unique<BufferPath>(*comm, algorithm, chosen, bytes, buffer,
                                             std::move(channel), std::move(partial)));
}

}  // namespace vescomm::internal
