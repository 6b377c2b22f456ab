// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <functional>
#include <mutex>
#include <new>
#include <string>

#include "base/failure.h"
#include "bootstrap/control.h"
#include "comm/inter_node_failure.h"

namespace vescomm::internal {

// The failure of a communicator: breaks it on this rank, and notifies the other ranks.
//
// Threads: safe after listen().
class CommFailure {
public:
    explicit CommFailure(Control &control);

    // While it exists, a failure of one communicator breaks another one too. At most one for each
    // `from`. Both must outlive it.
    class Link {
    public:
        Link(CommFailure &from, CommFailure &to);
        ~Link();
        Link(const Link &) = delete;
        Link &operator=(const Link &) = delete;

    private:
        CommFailure &from_;
    };

    // Sets a function that runs with the first cause before the failure is visible; see
    // Failure::record_first(). Before listen().
    void record_first(std::function<void(vescomm_status_t, const std::string &)> record) {
        first_.record_first(std::move(record));
    }
    // Sets a function that describes the latest call of this rank, for errors of ranks that made
    // different calls. Before listen().
    void describe_call(std::function<std::string()> describe) { call_ = std::move(describe); }
    // Receives the failures of other ranks from now on. `wake` wakes the threads that wait. The
    // first failure is logged.
    void listen(const std::function<void()> &wake);

    // The first cause.
    const Failure &first() const noexcept { return first_; }
    // Receives the failures of the inter-node transports.
    Failure &inter_node() noexcept { return inter_node_.failure(); }

    bool broken() const noexcept { return first_.broken(); }
    // True: the transports must stop. Either the communicator is broken, or an inter-node transport
    // has failed and the communicator may break soon.
    bool stops_transports() const noexcept { return first_.broken() || inter_node_.broken(); }
    // Throws the first cause when broken, after flush().
    void check() const {
        if (broken()) [[unlikely]]
            throw_first();
    }
    // Once it is broken: waits for at most a second until this rank has notified the others. The
    // program may end its process as soon as it learns of the failure.
    void flush() const noexcept { control_.flush_failure(); }

    // Breaks the communicator for all ranks, for this one before it returns.
    void fail(vescomm_status_t status, const std::string &why) noexcept;
    // `why` returns the sentence. If it runs out of memory, the sentence is that of run_out().
    template <std::invocable Why>
    void fail(vescomm_status_t status, const Why &why) noexcept {
        try {
            const std::string sentence = why();
            fail(status, sentence);
        } catch (const std::bad_alloc &) {
            fail(status, ran_out_);
        }
    }
    // Breaks the communicator because this rank ran out of memory. Allocates nothing.
    void run_out() noexcept { fail(VESCOMM_ERROR_OUT_OF_MEMORY, ran_out_); }
    // Breaks the communicator if the failure of an inter-node transport counts.
    void consider_inter_node() noexcept;

    // Reports to the other ranks that this rank destroys its communicator without having freed it.
    void drop() noexcept;

private:
    [[noreturn]] void throw_first() const;
    void log_first() const noexcept;
    // Breaks the linked communicator if this one is broken.
    void pass_on() noexcept;

    Control &control_;
    const int rank_, ranks_;  // control_ may be in its destructor when a failure is logged
    const std::string ran_out_;  // the sentence of run_out()
    Failure first_;
    InterNodeFailure inter_node_;
    std::function<std::string()> call_;
    std::mutex link_mutex_;  // held while pass_on() runs
    CommFailure *linked_ = nullptr;
};

}  // namespace vescomm::internal
