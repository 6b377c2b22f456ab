// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/request.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "observe/log.h"

namespace vescomm::internal {

Request::Request(std::shared_ptr<Communicator> comm, const Options &options, Arrays arrays,
                 std::unique_ptr<RequestPath> path, const AlgorithmEntry &algorithm,
                 std::string why, const Bindings &bindings)
    : comm_(std::move(comm)),
      options_(options),
      arrays_(std::move(arrays)),
      path_(std::move(path)),
      partial_sums_(path_->partial_sums()),
      algorithm_(algorithm),
      why_(std::move(why)),
      operation_(comm_->admit(path_->schedule(), bindings)) {
    operation_->set_tag(arrays_.tag);
    if (log_enabled(LogLevel::debug, "comm"))
        log(LogLevel::debug, "comm", comm_->rank(), comm_->ranks(),
            describe() + ": algorithm " + std::string(algorithm_.name) + ", because " + why_);
}

Request::~Request() {
    if (partial_sums_ != nullptr && partial_sums_->last_user == this)
        partial_sums_->last_user = nullptr;
    const std::uint64_t runs = operation_->runs();
    comm_->retire(std::move(operation_), [this] { return describe(); });
    path_->end(runs);
}

bool Request::suits(const Options &options, const Arrays &arrays) const {
    const auto same_sizes = [](const std::vector<Piece> &a, const std::vector<Piece> &b) {
        return std::ranges::equal(a, b, {}, &Piece::elements, &Piece::elements);
    };
    return options_ == options && arrays_.cuts == arrays.cuts &&
           arrays_.exchange == arrays.exchange && arrays_.boundaries == arrays.boundaries &&
           same_sizes(arrays_.source, arrays.source) && same_sizes(arrays_.output, arrays.output);
}

void Request::move_arrays(const Arrays &arrays) {
    key_.reset();
    explanation_.clear();
    arrays_.tag = arrays.tag;
    operation_->set_tag(arrays.tag);
    operation_->move_arrays(arrays.source, arrays.output);
}

std::string Request::describe() const {
    std::string text = std::string(name_of(options_.collective)) + path_->object();
    if (arrays_.tag != 0) text += " with tag " + std::to_string(arrays_.tag);
    return text;
}

void Request::require_idle_memory() const {
    if (running())
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options_,
               "the request" + path_->object() + " is running already; wait for it first");
    const Request *user = partial_sums_ == nullptr ? nullptr : partial_sums_->last_user;
    if (user != nullptr && user->running())
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options_,
               "the request" + path_->object() + " shares memory with the running " +
                   user->describe() +
                   ", so their partial sums would mix; wait for that first, or give the buffers "
                   "different memories");
}

inline Run Request::next_run() {
    require_idle();
    const Run run = path_->next(*operation_);
    if (partial_sums_ != nullptr) partial_sums_->last_user = this;
    started_at_ = comm_->trace().on() ? trace_seconds() : 0;
    return run;
}

void Request::start() {
    silence_.end();
    comm_->start(*operation_, next_run());
    started_.store(true, std::memory_order_relaxed);
}

void Request::run() {
    const Run run = next_run();
    const bool complete =
        operation_->is_small() ? comm_->run_small(*operation_, run) : comm_->run(*operation_, run);
    if (complete && started_at_ == 0) return;
    started_.store(true, std::memory_order_relaxed);
    if (!complete) comm_->wait(*operation_, [this] { return describe(); });
    finish();
}

void start_several(const std::vector<std::unique_ptr<Request>> &requests) {
    for (const auto &request : requests) request->require_idle();
    for (const auto &request : requests) request->start();
}

bool Request::test() {
    if (!running()) {
        comm_->failure().check();
        return true;
    }
    if (!comm_->test(*operation_, silence_, [this] { return describe(); })) return false;
    finish();
    return true;
}

void Request::wait() {
    if (!running()) {
        comm_->failure().check();
        return;
    }
    if (!comm_->poll(*operation_)) comm_->wait(*operation_, [this] { return describe(); });
    finish();
}

bool Request::try_wait(const std::function<bool()> &meanwhile) {
    if (!running()) {
        comm_->failure().check();
        return true;
    }
    if (!comm_->poll(*operation_) && !comm_->try_wait(
                                         *operation_, [this] { return describe(); }, meanwhile))
        return false;
    finish();
    return true;
}

bool Request::under_way() {
    try {
        return !test();
    } catch (...) {
        // The request failed. The failure itself may throw std::bad_alloc.
        return false;
    }
}

ReceivedMessage Request::received() const {
    const MessageHeader *message = operation_->message();
    return ReceivedMessage{.source = message->source,
                           .tag = message->tag,
                           .type = options_.type,
                           .count = arrays_.output.empty() ? 0 : arrays_.output[0].elements};
}

// Several threads may wait for one run: one of them records it.
void Request::finish() {
    if (comm_->trace().on() && started_at_ > 0 && started_.exchange(false))
        comm_->trace().record([this] { return describe(); }, "requests", started_at_,
                              trace_seconds());
    started_.store(false, std::memory_order_release);
}

const std::string &Request::explanation() {
    if (!explanation_.empty()) return explanation_;
    std::string text = describe() + ": " + std::string(algorithm_.name) + ", " +
                       std::string(algorithm_.summary) + "; chosen because " + why_ + "\n";
    if (const auto seconds = path_->predict())
        text += "predicted to take " + time_text(*seconds) + "\n";
    if (operation_->can_register())
        text += operation_->registers_source()
                    ? "the source of this rank is registered: local peers read it where it is\n"
                    : "the source of this rank is private, or the result replaces it: it passes "
                      "through the staging buffer\n";
    explanation_ = text + vescomm::internal::describe(path_->schedule());
    return explanation_;
}

}  // namespace vescomm::internal
