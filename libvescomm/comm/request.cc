// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/request.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "comm/agree.h"
#include "comm/schedule_check.h"
#include "execute/kernels.h"
#include "execute/match/signature.h"
#include "schedule/send_receive.h"
#include "simulate/select.h"

namespace vescomm {

namespace {

Problem problem_of(const Communicator &comm, const Buffer *buffer,
                   const Request::Options &options) {
    Problem problem;
    problem.collective = options.collective;
    problem.nodes = comm.nodes();
    problem.root = options.root;
    problem.in_order = comm.reproducible();
    if (buffer != nullptr) {
        problem.cuts.assign(buffer->layout().cuts().begin(), buffer->layout().cuts().end());
        // Whose shard is where means nothing to an all_reduce: everyone sums as much.
        if (options.collective == Collective::all_reduce)
            cut_evenly(problem.elements(), comm.ranks(), problem.cuts);
        problem.per_node = buffer->per_node();
    }
    return problem;
}

// Whether any rank has a source or an output of its own. Then all count as having one: those that
// gave none have their shard of the buffer.
bool anyone_apart(Communicator &comm, const std::string &label, const Request::Options &options) {
    const bool takes_any = options.collective == Collective::all_gather_v ||
                           options.collective == Collective::reduce_scatter_v;
    if (!takes_any) return false;
    const bool mine = options.source != nullptr || options.output != nullptr;
    const auto all = comm.gather(label, mine ? "apart" : "in place", comm.deadline());
    return std::ranges::find(all, "apart") != all.end();
}

[[noreturn]] void refuse(vescomm_status_t status, const Request::Options &options,
                         const std::string &why) {
    throw Error(status, std::string(name_of(options.collective)) + ": " + why);
}

void check(const Communicator &comm, const Buffer *buffer, const Request::Options &options) {
    Request::check(comm, options);
    if (options.source != nullptr && options.collective != Collective::all_gather_v)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options, "takes no source; leave it NULL");
    if (options.output != nullptr && options.collective != Collective::reduce_scatter_v)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options, "takes no output; leave it NULL");
    if (buffer == nullptr) return;
    if (reduces(options.collective) && buffer->per_node())
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "buffer \"" + buffer->name() +
                   "\" is one slab for each node, where ranks have nothing of their own to "
                   "combine; make it VESCOMM_PER_RANK");
    if (options.output != nullptr && !can_reduce(options.type, buffer->type()))
        refuse(VESCOMM_ERROR_UNSUPPORTED, options,
               "the output is " + name_of_type(options.type) + "; it must be " +
                   name_of_type(buffer->type()) + ", as the buffer is, or " +
                   name_of_type(accumulator_of(buffer->type())));
    if (options.source != nullptr && !can_convert(buffer->type(), options.type))
        refuse(VESCOMM_ERROR_UNSUPPORTED, options,
               "there is no conversion from a source of " + name_of_type(options.type) +
                   " to buffer \"" + buffer->name() + "\" of " + name_of_type(buffer->type()) +
                   "; f32 and f64 convert to and from every float");
}

// The algorithm that must be taken, if any, and the variable that says so, if it is not the caller,
// who goes first.
struct Override {
    std::string_view algorithm, variable;
};

Override override_of(const Communicator &comm, const Request::Options &options) {
    if (!options.algorithm.empty()) return {options.algorithm, {}};
    const std::string_view forced = comm.forced().of(options.collective);
    if (forced.empty()) return {};
    return {forced, "VESCOMM_ALGORITHM"};
}

ElementBytes bytes_of(vescomm_type_t type) {
    return {static_cast<int>(size_of(type)), static_cast<int>(size_of(accumulator_of(type)))};
}

// Of an operation of this communicator, what no schedule and no memory changes.
Bindings bindings_of(Communicator &comm, const Request::Options &options) {
    Bindings bindings;
    bindings.rank = comm.rank();
    bindings.nodes = comm.nodes();
    bindings.intra_node = &comm.intra_node();
    bindings.transports = comm.routes();
    bindings.op = options.op;
    bindings.factor = options.factor;
    if (options.op == VESCOMM_AVERAGE) bindings.divisor = comm.ranks();
    return bindings;
}

// A collective on a buffer, and as one on arrays that pass through the staging buffer: one more
// copy, but one wait where it takes two or three in the buffer, since nobody has to know that it
// was read, nor where it was summed. Of much, the copy costs more than any wait, and a prediction
// is long. Between nodes only arrays are combined in the order of ranks.
std::vector<Problem> variants_of(const Problem &problem, const Buffer *buffer,
                                 const StagingBuffer &staging, bool forced) {
    constexpr std::int64_t max_bytes = 1 << 20;
    std::vector<Problem> variants{problem};
    if (buffer == nullptr || buffer->per_node()) return variants;
    const auto bytes = problem.elements() * static_cast<std::int64_t>(size_of(buffer->type()));
    const bool is_worth_it = problem.nodes.count() == 1 && (forced || bytes <= max_bytes);
    // To a root nothing of the buffer's own leads by way of other nodes.
    const bool only_staged =
        problem.nodes.count() > 1 && (problem.collective == Collective::reduce ||
                                      (problem.in_order && reduces(problem.collective)));
    if (!is_worth_it && !only_staged) return variants;
    Problem &staged = variants.emplace_back(problem);
    staged.arrays = true;
    staging.give_space(staged, buffer->type());
    return variants;
}

// What a collective on a buffer writes on this node.
std::uint64_t written_bytes(const Communicator &comm, const Buffer &buffer) {
    const auto locals = comm.nodes().members(comm.nodes().node_of(comm.rank())).size();
    const std::uint64_t one =
        static_cast<std::uint64_t>(buffer.layout().elements()) * size_of(buffer.type());
    return buffer.per_node() ? one : one * locals;
}

// Of the last-level cache, what cores that share it can count on. Virtual machines report that of
// their host, which is of no use.
constexpr std::uint64_t last_level_cache = 32 << 20;

// What messages have in the place of a row of the table: there is no choice.
constexpr AlgorithmEntry through_eager_buffers = {
    Collective::send, "eager_buffers", send_receive, can_send_receive,
    "the message passes through a box of the eager_buffers, chunk by chunk"};

// The upper half of a flag.
constexpr std::uint64_t max_run = (std::uint64_t{1} << 32) - 1;

// A rank may have nothing to exchange in it, although others disagree.
bool joins_history(Collective collective) {
    return collective == Collective::gather_v || collective == Collective::scatter_v;
}

// A buffer as the arrays of its collective.
void bind_arrays(Bindings &bindings, const Problem &problem, const Buffer &buffer,
                 const Request::Options &options) {
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

}  // namespace

void Request::check(const Communicator &comm, const Options &options) {
    const bool message = is_message(options.collective);
    if (options.root < 0 || options.root >= comm.ranks())
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               (message ? "peer is " : "root is ") + std::to_string(options.root) +
                   ", and there are ranks 0 to " + std::to_string(comm.ranks() - 1));
    if (options.op < VESCOMM_SUM || options.op > VESCOMM_PREMULTIPLIED_SUM)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "there is no op " + std::to_string(options.op) +
                   "; use one of VESCOMM_SUM (0) to VESCOMM_PREMULTIPLIED_SUM (" +
                   std::to_string(VESCOMM_PREMULTIPLIED_SUM) + ")");
    if (options.op != 0 && !reduces(options.collective))
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options, "takes no op; leave it zero");
    if (options.root != 0 && !message && !has_root(options.collective))
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options, "takes no root; leave it zero");
    if (options.op == VESCOMM_PREMULTIPLIED_SUM && options.factor == 0)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "factor is 0; give VESCOMM_PREMULTIPLIED_SUM what to multiply by");
    if (options.op != VESCOMM_PREMULTIPLIED_SUM && options.factor != 0)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "takes no factor without VESCOMM_PREMULTIPLIED_SUM; leave it zero");
}

std::unique_ptr<Request> Request::create(const std::shared_ptr<StagingBuffer> &staging,
                                         const std::shared_ptr<Buffer> &buffer,
                                         const Options &options) {
    const std::shared_ptr<Communicator> &comm = staging->comm();
    comm->check();
    if (buffer && &buffer->comm() != comm.get())
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "buffer \"" + buffer->name() + "\" belongs to another communicator");
    vescomm::check(*comm, buffer.get(), options);
    std::unique_ptr<Request> request(new Request());
    Request &self = *request;
    self.comm_ = comm;
    self.buffer_ = buffer;
    self.options_ = options;
    const std::string label = "creation of " + self.describe();

    Problem in_buffer = problem_of(*comm, buffer.get(), options);
    in_buffer.in_place = !anyone_apart(*comm, label, options);
    in_buffer.plain_sums = buffer && accumulator_of(buffer->type()) == buffer->type() &&
                           options.op != VESCOMM_PREMULTIPLIED_SUM;
    const Override override_ = override_of(*comm, options);
    std::vector<Problem> variants =
        variants_of(in_buffer, buffer.get(), *staging, !override_.algorithm.empty());
    const Choice choice = select(variants, buffer ? bytes_of(buffer->type()) : ElementBytes{},
                                 comm->machine(), override_.algorithm, override_.variable);
    self.problem_ = std::move(variants[choice.variant]);
    const Problem &problem = self.problem_;
    const bool staged = choice.variant > 0;

    self.algorithm_ = choice.algorithm;
    self.why_ = choice.why;
    if (checks_schedules && comm->rank() == 0) check_if_small(*choice.algorithm, problem);
    const Schedule schedule = self.schedule();

    const Deadline deadline = comm->deadline();
    const Description description = {
        {"the op", std::to_string(options.op)},
        {"the factor", std::to_string(options.factor)},
        {"the root", std::to_string(options.root)},
        {"the buffer's memory", buffer ? std::to_string(buffer->memory().id()) : "none"},
        {"the algorithm", std::string(choice.algorithm->name)},
        {"the way", staged ? "through the staging buffer" : "in the buffer"}};
    if (staged) require_same(*comm, label, deadline, description);
    else self.channel_ = require_same_and_take_channel(*comm, label, deadline, description);

    Bindings bindings = bindings_of(*comm, options);
    const std::size_t element = buffer ? size_of(buffer->type()) : 0;
    bindings.flight_word = flight_word(*choice.algorithm, buffer ? buffer->type() : -1, options.op,
                                       static_cast<std::uint64_t>(problem.elements()) * element);
    const std::int64_t shard = problem.cuts.empty() ? 0 : problem.size(comm->rank());
    if (staged) {
        self.staging_ = staging;
        staging->bind(bindings, buffer->type());
        bindings.signature =
            Signature(problem, choice.algorithm->name, buffer->type(), options.op, options.factor)
                .bits();
        bind_arrays(bindings, problem, *buffer, options);
        self.operation_ = comm->admit(schedule, bindings);
        return request;
    }
    bindings.channel = self.channel_->number;
    if (buffer) {
        bindings.buffer = {.type = buffer->type(),
                           .memory = buffer->memory().id(),
                           .mapping = buffer->memory().mapping(),
                           .offset_bytes = buffer->offset_bytes()};
        bindings.release = {buffer->memory().release_channel(), 0};
        bindings.streaming = written_bytes(*comm, *buffer) > last_level_cache;
    }
    // Sources are only read; the executor has one kind of pointer.
    for (const auto &[its, given] :
         {std::pair{&bindings.source, const_cast<void *>(options.source)},
          std::pair{&bindings.output, options.output}}) {
        auto *data = static_cast<std::byte *>(given);
        const bool in_buffer_too = data == nullptr && buffer && !problem.cuts.empty();
        its->type = in_buffer_too ? buffer->type() : options.type;
        its->pieces = {{in_buffer_too ? buffer->at(problem.begin(comm->rank())) : data, shard}};
    }

    // Partial sums lie in memory like any other: everyone makes as much as whoever needs most.
    // Requests on one memory never run at once, so they share it.
    const std::int64_t mine = schedule.partial;
    const auto needs =
        comm->gather(label, {reinterpret_cast<const char *>(&mine), sizeof mine}, deadline);
    std::int64_t max = 0;
    for (const std::string &need : needs) {
        std::int64_t elements = 0;
        std::memcpy(&elements, need.data(), std::min(sizeof elements, need.size()));
        max = std::max(max, elements);
    }
    if (max > 0) {
        self.partial_ = buffer->memory().shared_partial(static_cast<std::uint64_t>(max) *
                                                        size_of(accumulator_of(buffer->type())));
        bindings.partial = {.type = accumulator_of(buffer->type()),
                            .memory = self.partial_->id(),
                            .mapping = self.partial_->mapping()};
    }
    self.operation_ = comm->admit(schedule, bindings);
    return request;
}

std::unique_ptr<Request> Request::create(const std::shared_ptr<StagingBuffer> &staging,
                                         Arrays arrays, const Options &options) {
    Communicator &comm = *staging->comm();
    comm.check();
    check(comm, options);
    std::unique_ptr<Request> request(new Request());
    Request &self = *request;
    Problem &problem = self.problem_;
    problem.collective = options.collective;
    problem.nodes = comm.nodes();
    problem.arrays = true;
    problem.root = options.root;
    problem.in_order = comm.reproducible();
    problem.cuts = arrays.cuts;
    problem.exchange = arrays.exchange;
    staging->give_space(problem, options.type);
    const Override override_ = override_of(comm, options);
    const Choice choice = select({&problem, 1}, bytes_of(options.type), comm.machine(),
                                 override_.algorithm, override_.variable);
    self.comm_ = staging->comm();
    self.staging_ = staging;
    self.options_ = options;
    self.in_history_ = joins_history(options.collective);
    self.algorithm_ = choice.algorithm;
    self.why_ = choice.why;
    self.elements_ = std::max(problem.elements(), problem.source_size(comm.rank()));

    Bindings bindings = bindings_of(comm, options);
    bindings.flight_word =
        flight_word(*choice.algorithm, options.type, options.op,
                    static_cast<std::uint64_t>(self.elements_) * size_of(options.type));
    staging->bind(bindings, options.type);
    bindings.signature =
        Signature(problem, choice.algorithm->name, options.type, options.op, options.factor).bits();
    bindings.pair_digests = pair_digests(problem, comm.rank());
    bindings.source.type = options.type;
    bindings.source.pieces = arrays.source;
    bindings.output.type = options.type;
    bindings.output.pieces = arrays.output;
    if (checks_schedules && comm.rank() == 0) check_if_small(*choice.algorithm, problem);
    self.operation_ = comm.admit(self.schedule(), bindings);
    self.arrays_ = std::move(arrays);
    return request;
}

std::unique_ptr<Request> Request::create(const std::shared_ptr<EagerBuffers> &eager_buffers,
                                         Arrays arrays, const Options &options) {
    Communicator &comm = *eager_buffers->comm();
    comm.check();
    check(comm, options);
    if (!options.algorithm.empty() && options.algorithm != through_eager_buffers.name)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "there is no algorithm \"" + options.algorithm + "\"; leave it NULL");
    const bool receives = options.collective == Collective::receive;
    const std::vector<Piece> &pieces = receives ? arrays.output : arrays.source;

    std::unique_ptr<Request> request(new Request());
    Request &self = *request;
    self.comm_ = eager_buffers->comm();
    self.eager_buffers_ = eager_buffers;
    self.options_ = options;
    self.algorithm_ = &through_eager_buffers;
    self.why_ = "no other is for messages";
    self.elements_ = pieces.empty() ? 0 : pieces[0].elements;

    Bindings bindings = bindings_of(comm, options);
    bindings.flight_word =
        flight_word(options.collective, options.type,
                    static_cast<std::uint64_t>(self.elements_) * size_of(options.type));
    eager_buffers->bind(bindings, options.type, options.root, receives);
    bindings.signature = Signature::of_message(options.type, self.elements_).bits();
    bindings.source.type = bindings.output.type = options.type;
    bindings.source.pieces = arrays.source;
    bindings.output.pieces = arrays.output;
    self.operation_ = comm.admit(self.schedule(), bindings);
    self.arrays_ = std::move(arrays);
    return request;
}

bool Request::suits(const Options &options, const Arrays &arrays) const {
    const auto same_shape = [](const std::vector<Piece> &a, const std::vector<Piece> &b) {
        return std::ranges::equal(a, b, {}, &Piece::elements, &Piece::elements);
    };
    return options_ == options && arrays_.cuts == arrays.cuts &&
           arrays_.exchange == arrays.exchange && same_shape(arrays_.source, arrays.source) &&
           same_shape(arrays_.output, arrays.output);
}

void Request::move_arrays(const Arrays &arrays) {
    operation_->move_arrays(arrays.source, arrays.output);
}

Request::~Request() {
    const std::uint64_t runs = operation_ ? operation_->runs() : 0;
    if (operation_) comm_->retire(std::move(operation_), [this] { return describe(); });
    if (!channel_) return;
    const std::uint64_t last = std::min(channel_->runs + runs, max_run);
    comm_->channels().give_back({channel_->number, static_cast<std::uint32_t>(last)});
}

Schedule Request::schedule() const {
    if (!eager_buffers_) return algorithm_->make(problem_, comm_->rank());
    const bool receives = options_.collective == Collective::receive;
    const int from = receives ? options_.root : comm_->rank();
    const int to = receives ? comm_->rank() : options_.root;
    const Message message{{from, Region::source, 0}, {to, Region::output, 0}, elements_};
    Schedule schedule;
    schedule.lanes.push_back(
        (receives ? receive : send)(comm_->nodes(), eager_buffers_->chunk(options_.type), message));
    return schedule;
}

std::string Request::describe() const {
    std::string text(name_of(options_.collective));
    if (buffer_) text += " of \"" + buffer_->name() + "\"";
    if (!buffer_ && (staging_ || eager_buffers_))
        text += " of " + std::to_string(elements_) + " " + name_of_type(options_.type);
    if (eager_buffers_)
        text += (options_.collective == Collective::send ? " to rank " : " from rank ") +
                std::to_string(options_.root);
    return text;
}

void Request::require_idle() const {
    comm_->check();
    if (running())
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options_,
               "the request" +
                   (buffer_ ? " on buffer \"" + buffer_->name() + "\"" : std::string()) +
                   " is running already; wait for it first");
}

inline Run Request::next_run() {
    const bool receives = options_.collective == Collective::receive;
    if (eager_buffers_) return eager_buffers_->next(options_.root, receives);
    if (staging_) return staging_->next(in_history_ ? operation_->signature() : 0);
    return {.number = (channel_ ? channel_->runs : 0) + operation_->runs() + 1};
}

void Request::start() {
    require_idle();
    Run run = next_run();
    if (buffer_ && buffer_->per_node()) run.releases = buffer_->memory().begin_gather();
    started_at_ = comm_->trace().on() ? trace_seconds() : 0;
    comm_->start(*operation_, run);
    started_ = true;
}

void start_all(const std::vector<std::unique_ptr<Request>> &requests) {
    if (requests.size() > 1)
        for (const auto &request : requests) request->require_idle();
    for (const auto &request : requests) request->start();
}

bool Request::test() {
    if (!started_) {
        comm_->failure().check();
        return true;
    }
    if (!comm_->test(*operation_)) return false;
    finish();
    return true;
}

void Request::wait() {
    if (!started_) {
        comm_->failure().check();
        return;
    }
    comm_->wait(*operation_, [this] { return describe(); });
    finish();
}

bool Request::under_way() {
    try {
        return !test();
    } catch (...) {
        // It failed, and perhaps there is no memory for the sentence that says so.
        return false;
    }
}

void Request::finish() {
    started_ = false;
    if (comm_->trace().on() && started_at_ > 0)
        comm_->trace().record([this] { return describe(); }, "requests", started_at_,
                              trace_seconds());
}

const std::string &Request::explanation() {
    if (!explanation_.empty()) return explanation_;
    std::string text = describe() + ": " + std::string(algorithm_->name) + ", " +
                       std::string(algorithm_->summary) + "; chosen because " + why_ + "\n";
    if (!eager_buffers_) {
        const ElementBytes bytes = buffer_    ? bytes_of(buffer_->type())
                                   : staging_ ? bytes_of(options_.type)
                                              : ElementBytes{};
        if (const auto seconds = predict(*algorithm_, problem_, bytes, comm_->machine()))
            text += "predicted to take " + microseconds(*seconds) + "\n";
    }
    explanation_ = text + vescomm::describe(schedule());
    return explanation_;
}

}  // namespace vescomm
