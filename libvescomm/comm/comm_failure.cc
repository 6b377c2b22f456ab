// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/comm_failure.h"

#include "base/error.h"
#include "execute/match/mismatch.h"
#include "observe/log.h"

namespace vescomm::internal {

CommFailure::CommFailure(Control &control)
    : control_(control),
      rank_(control.rank()),
      ranks_(control.ranks()),
      ran_out_("rank " + std::to_string(control.rank()) + " ran out of memory") {}

void CommFailure::listen(const std::function<void()> &wake) {
    control_.listen([this](vescomm_status_t status, const std::string &why) {
        first_.set(status, why);
        inter_node_.failure().set(status, why);
    });
    inter_node_.on_first(wake);
    first_.on_first([this, wake] {
        wake();
        pass_on();
        log_first();
    });
}

CommFailure::Link::Link(CommFailure &from, CommFailure &to) : from_(from) {
    {
        const std::lock_guard lock(from.link_mutex_);
        from.linked_ = &to;
    }
    // A failure that came before found no link.
    from.pass_on();
}

CommFailure::Link::~Link() {
    const std::lock_guard lock(from_.link_mutex_);
    from_.linked_ = nullptr;
}

void CommFailure::pass_on() noexcept {
    const std::lock_guard lock(link_mutex_);
    if (linked_ != nullptr && broken())
        linked_->fail(first_.status(), [this] { return first_.why(); });
}

void CommFailure::throw_first() const {
    flush();
    std::string why = first_.why();
    // All ranks have the same sentence, without the sizes of the calls. The ranks that it names add
    // their own.
    const std::string rank = "rank " + std::to_string(rank_);
    if (call_ && why.find(arguments_differ) != std::string::npos &&
        why.find(rank + " called ") != std::string::npos)
        if (const std::string call = call_(); !call.empty())
            why += "; the latest call that " + rank + " started is " + call;
    throw Error(first_.status(), why);
}

// At level info: every call that waits returns the sentence too, and the program reports that.
void CommFailure::log_first() const noexcept {
    if (!log_enabled(LogLevel::info, "comm")) return;
    try {
        log(LogLevel::info, "comm", rank_, ranks_, "broken: " + first_.why());
    } catch (const std::bad_alloc &) {
        // No memory for the line: it is dropped, as in log().
    }
}

void CommFailure::fail(vescomm_status_t status, const std::string &why) noexcept {
    control_.fail(status, why);
    // The next call of this rank must fail, even before the control plane reports the failure.
    first_.set(status, why);
}

void CommFailure::consider_inter_node() noexcept {
    if (broken() || !inter_node_.counts()) return;
    const Failure &cause = inter_node_.failure();
    fail(cause.status(), [&cause] { return cause.why(); });
}

void CommFailure::drop() noexcept {
    try {
        control_.fail(VESCOMM_ERROR_ABORTED, "rank " + std::to_string(control_.rank()) +
                                                 " dropped its communicator without freeing it");
    } catch (const std::bad_alloc &) {
        control_.fail(VESCOMM_ERROR_ABORTED, ran_out_);
    }
}

}  // namespace vescomm::internal
