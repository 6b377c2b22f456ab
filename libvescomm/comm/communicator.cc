// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "bootstrap/session.h"
#include "comm/agree.h"
#include "comm/machine_exchange.h"
#include "comm/peer_info.h"
#include "comm/recording_time.h"
#include "observe/file.h"
#include "observe/log.h"
#include "schedule/algorithms.h"
#include "schedule/rails.h"

namespace vescomm::internal {

namespace {

// Polls of a wait before it yields its core, where every rank of the node has a core: a flag then
// arrives within about a microsecond. Ranks that share cores yield at once.
constexpr int spins_with_cores = 200;

// The longest delay of failure reports, in which flight recorders are written. Waits end within two
// seconds after their deadline; a working file system needs far less than one.
constexpr auto max_recording_time = std::chrono::seconds(1);

RecordingTime &recording_time() {
    static RecordingTime time(max_recording_time);
    return time;
}

// Returns the peer info of all ranks, by rank.
std::vector<PeerInfo> gather_peer_info(Control &control, const PeerInfo &mine, Deadline limit) {
    std::vector<PeerInfo> all;
    for (const std::string &text : control.all_gather("communicator creation", mine.text(), limit))
        all.push_back(PeerInfo::parse(text));
    return all;
}

std::vector<std::string> each(const std::vector<PeerInfo> &all, std::string PeerInfo::*part) {
    std::vector<std::string> parts;
    for (const PeerInfo &one : all) parts.push_back(one.*part);
    return parts;
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Control> control, const Config &config)
    : config_(config),
      control_(std::move(control)),
      failure_(*control_),
      engine_(*control_, failure_, observers_, config.timeout_seconds, config.silence_seconds) {
    static std::atomic<int> made{0};
    number_ = made++;
}

std::shared_ptr<Communicator> Communicator::create(std::unique_ptr<Control> control,
                                                   const std::string &node, const Config &config,
                                                   const MakeTransports &make,
                                                   const std::string &creator,
                                                   const Parent *parent) {
    std::shared_ptr<Communicator> comm(new Communicator(std::move(control), config));
    try {
        comm->set_up(node, make, creator, parent);
    } catch (const Error &error) {
        comm->left_ = true;
        const bool echo =
            error.status == VESCOMM_ERROR_SYSTEM || error.status == VESCOMM_ERROR_PEER_FAILED;
        const auto end = Clock::now() + InterNodeFailure::patience;
        while (echo && !comm->failure_.broken() && Clock::now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        comm->failure_.check();
        comm->control_->fail(error.status, "rank " + std::to_string(comm->rank()) +
                                               " could not make its communicator: " + error.what());
        throw;
    }
    return comm;
}

void Communicator::set_up(const std::string &node, const MakeTransports &make,
                          const std::string &creator, const Parent *parent) {
    const auto wake = [this] { engine_.wake(); };
    record_failures();
    failure_.describe_call([this] { return latest_collective(observers_.recorder); });
    failure_.listen(wake);
    if (parent != nullptr) {
        derived_ = true;
        creation_.emplace(parent->deadline, parent->comm.failure_, failure_);
    }
    const Deadline limit = deadline();
    const int spins = exchange_peer_info(node, creator, limit) ? spins_with_cores : 0;
    engine_.set_transports(make(nodes_, *control_, failure_.inter_node(), wake, limit),
                           nodes_.local_rank(rank()), spins);
    const Transports &transports = engine_.transports();
    numbers_.channels().set_count(transports.intra_node->board()->channels());
    control_->on_event(wake);
    if (!transports.warning.empty() && rank() == 0)
        log(LogLevel::warn, "transport", rank(), ranks(), transports.warning);
    create_barrier();
    log_transports();
    const bool wired =
        std::any_of(transports.inter_node.begin(), transports.inter_node.end(),
                    [](const auto &transport) { return transport->descriptor() >= 0; });
    if (config_.progress == "thread" || (config_.progress == "auto" && wired))
        engine_.start_thread();
}

bool Communicator::exchange_peer_info(const std::string &node, const std::string &creator,
                                      Deadline limit) {
    const std::string algorithms = config_.algorithm.empty() ? "not set" : config_.algorithm;
    const PeerInfo mine{.node = node,
                        .machine = machine_text(rank(), config_),
                        .algorithms = algorithms,
                        .reproducible = config_.reproducible,
                        .pool = std::to_string(offered_pool_bytes(config_.malloc_bytes, ranks())),
                        .creator = creator};
    const std::vector<PeerInfo> all = gather_peer_info(*control_, mine, limit);
    Session::Creation::require_same_creators(each(all, &PeerInfo::creator));
    require_same("communicator creation", "VESCOMM_ALGORITHM", each(all, &PeerInfo::algorithms));
    require_same("communicator creation", "being reproducible", each(all, &PeerInfo::reproducible));
    nodes_ = Nodes::from_names(each(all, &PeerInfo::node));
    machine_texts_ = each(all, &PeerInfo::machine);
    const MachineExchange exchanged = machine_exchange(nodes_, machine_texts_);
    machine_ = exchanged.machine;
    pool_.bytes = pool_bytes(each(all, &PeerInfo::pool), nodes_.largest());
    forced_ = Forced::parse(config_.algorithm);
    return local_ranks() <= exchanged.cores[nodes_.node_of(rank())];
}

void Communicator::create_barrier() {
    BufferProblem problem;
    problem.nodes = nodes_;
    const AlgorithmEntry &algorithm = *find_algorithm(Collective::barrier, "dissemination");
    Bindings bindings;
    bindings.rank = rank();
    bindings.nodes = nodes_;
    bindings.flight_word = flight_word(algorithm, VESCOMM_TYPE_DEFAULT, VESCOMM_SUM, 0);
    bindings.channel = numbers_.next_channel();
    bindings.intra_node = &intra_node();
    bindings.transports = routes();
    barrier_ = admit(algorithm.make(problem, rank()), bindings);
}

void Communicator::log_transports() const {
    if (!log_enabled(LogLevel::info, "comm")) return;
    const Transports &transports = engine_.transports();
    std::string text = "nodes " + std::to_string(nodes_.count()) + ", ranks on this one " +
                       std::to_string(local_ranks()) + ", transports " +
                       std::string(transports.intra_node->name());
    for (const auto &transport : transports.inter_node)
        text += ", " + std::string(transport->name());
    text += pool_.bytes == 0 ? ", vescomm_malloc() private"
                             : ", vescomm_malloc() up to " + std::to_string(pool_.bytes) + " bytes";
    log(LogLevel::info, "comm", rank(), ranks(), text);
}

int Communicator::local_ranks() const {
    return static_cast<int>(nodes_.members(nodes_.node_of(rank())).size());
}

Communicator::~Communicator() {
    // After a creation that failed: the parent may pass its own failure on, to `control_`.
    creation_.reset();
    if (!left_) failure_.drop();
    engine_.stop();
    // Its threads call back into this object, so it is destroyed before the other members.
    control_.reset();
}

void Communicator::refuse_finalized() {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                "the communicator was finalized; nothing can be created or started on it");
}

// Another thread may finalize the communicator at the same time. It makes progress itself.
void Communicator::progress() {
    failure_.check();
    if (!left_) engine_.progress();
}

bool Communicator::try_progress() {
    failure_.check();
    return !left_ && engine_.try_progress();
}

void Communicator::retire(std::unique_ptr<Operation> operation,
                          const std::function<std::string()> &what) noexcept {
    const bool incomplete = engine_.retire(std::move(operation));
    if (!incomplete || failure_.broken() || left_) return;
    failure_.fail(VESCOMM_ERROR_ABORTED, [&] {
        return "rank " + std::to_string(rank()) + " gave up " + what() + " while it was under way";
    });
}

void Communicator::barrier() {
    check();
    start(*barrier_, {.number = barrier_->runs() + 1});
    wait(*barrier_, [] { return std::string("barrier"); });
}

void Communicator::abort(const std::string &reason) {
    failure_.fail(VESCOMM_ERROR_ABORTED,
                  "rank " + std::to_string(rank()) + " aborted the communicator: " + reason);
    failure_.flush();
}

std::vector<int> Communicator::staying() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < nodes_.ranks(); ++rank)
        if (rank != this->rank() && !control_->has_left(rank)) ranks.push_back(rank);
    return ranks;
}

void Communicator::wait_for_finalizing_ranks() {
    // A rank that died has not left. Its failure is about to be reported here.
    engine_.wait([this] { return control_->test_leave() && staying().empty(); },
                 [this] { return staying(); },
                 [] { return std::string("finalizing the communicator"); });
}

// A rank leaves after it has completed every operation that it started; other ranks rely on that.
void Communicator::finalize() {
    if (left_.exchange(true)) return engine_.check_stopped();
    try {
        engine_.check_stopped();
        engine_.wait_for_all(
            [] { return std::string("finalizing the communicator while requests are under way"); });
        control_->start_leave();
        wait_for_finalizing_ranks();
        engine_.check_stopped();
    } catch (...) {
        control_->end_leave();
        throw;
    }
    control_->end_leave();
}

void Communicator::leave() noexcept {
    try {
        finalize();
    } catch (const std::exception &) {
        // The communicator is broken: its connections close without the other ranks.
    }
}

FlightHeader Communicator::flight_header(vescomm_status_t status, const std::string &why) const {
    return {
        .rank = rank(), .ranks = ranks(), .communicator = number_, .status = status, .why = why};
}

void Communicator::write_flight_recorder(const std::string &pattern) const {
    // A single rank may write: the file name needs no %r.
    const Writer writer{.rank = rank(), .communicator = number_};
    const std::string name = file_name(pattern, writer, "");
    const FlightHeader header = failure_.broken()
                                    ? flight_header(failure().status(), failure().why())
                                    : flight_header(VESCOMM_OK, {});
    write_file_by(name, flight_text(header, observers_.recorder), "the flight recorder",
                  deadline());
}

void Communicator::record_failures() {
    if (config_.flight_recorder.empty()) return;
    const Writer writer{.rank = rank(), .ranks = ranks(), .communicator = number_};
    const std::string name = file_name(config_.flight_recorder, writer, "VESCOMM_FLIGHT_RECORDER=");
    // The callback may run while control_ is destroyed, so it has its own copy of the rank.
    failure_.record_first([this, name, writer](vescomm_status_t status, const std::string &why) {
        const Clock::time_point begin = Clock::now();
        const std::chrono::duration<double> left = recording_time().left(begin);
        try {
            const FlightHeader header{.rank = writer.rank,
                                      .ranks = writer.ranks,
                                      .communicator = writer.communicator,
                                      .status = status,
                                      .why = why};
            write_file_by(name, flight_text(header, observers_.recorder), "the flight recorder",
                          Deadline::after(left.count()));
        } catch (const Error &error) {
            log(LogLevel::error, "flight", writer.rank, writer.ranks, error.what());
        }
        recording_time().spend(begin, Clock::now());
    });
}

}  // namespace vescomm::internal
