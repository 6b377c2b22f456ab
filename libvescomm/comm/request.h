// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/buffer.h"
#include "comm/call_arguments.h"
#include "comm/communicator.h"
#include "comm/eager_buffers.h"
#include "comm/request_options.h"
#include "comm/request_path.h"
#include "comm/staging_buffer.h"
#include "execute/operation.h"
#include "schedule/algorithms.h"

namespace vescomm::internal {

// A message that a request has received.
struct ReceivedMessage {
    int source = 0;
    std::int32_t tag = 0;
    vescomm_type_t type = 0;
    std::int64_t count = 0;
};

// A collective, or one side of a message, that is created once and started many times.
//
// Threads: the caller serialises the calls on one request; test() and wait() may run together.
class Request {
public:
    using Options = RequestOptions;
    using Arrays = RequestArrays;

    // On a fused buffer; on no buffer for a barrier. Collective, blocking. buffer_request.cc
    static std::unique_ptr<Request> create(const std::shared_ptr<StagingBuffer> &staging,
                                           const std::shared_ptr<Buffer> &buffer,
                                           const Options &options);
    // On arrays of the callers, whole or in pieces. Does not communicate. array_request.cc
    static std::unique_ptr<Request> create(const std::shared_ptr<StagingBuffer> &staging,
                                           Arrays arrays, const Options &options);
    // A message: `arrays` has the source or the output. Does not communicate. message_request.cc
    static std::unique_ptr<Request> create(const std::shared_ptr<EagerBuffers> &eager_buffers,
                                           Arrays arrays, const Options &options);
    ~Request();

    // Arrays: true if the request also performs this call, once it has been given the arrays. It
    // must not be running.
    bool suits(const Options &options, const Arrays &arrays) const;
    void move_arrays(const Arrays &arrays);

    // Arrays: the call for which this request has the arrays now. Forgotten by move_arrays().
    void set_key(CallKey key) { key_ = std::move(key); }
    const CallKey *key() const { return key_ ? &*key_ : nullptr; }
    // True: it executes the call with these arguments as it is.
    bool repeats(const CallArguments &arguments) const noexcept {
        return key_ && key_->equals(arguments);
    }

    // Throws unless start() would start it.
    void require_idle() const {
        comm_->check();
        if (running() || partial_sums_ != nullptr) [[unlikely]]
            require_idle_memory();
    }
    void start();
    bool test();
    void wait();
    // wait(). Returns false if the program ended the wait (base/interrupt.h) and the request is
    // running; wait() then throws. `meanwhile`: see ProgressEngine::try_wait().
    bool try_wait(const std::function<bool()> &meanwhile = {});
    // start() and wait().
    void run();
    bool running() const { return started_.load(std::memory_order_acquire); }
    // True: bytes may still move. False if the communicator is broken. Makes progress.
    bool under_way();
    const std::string &explanation();
    bool receives() const noexcept { return options_.collective == Collective::receive; }
    // Only if the request receives: the message of the last run, which is complete.
    ReceivedMessage received() const;

private:
    // `why`: the reason for the choice of the algorithm.
    Request(std::shared_ptr<Communicator> comm, const Options &options, Arrays arrays,
            std::unique_ptr<RequestPath> path, const AlgorithmEntry &algorithm, std::string why,
            const Bindings &bindings);

    std::string describe() const;
    void require_idle_memory() const;
    // The next run, which is about to start.
    Run next_run();
    void finish();

    std::shared_ptr<Communicator> comm_;
    Options options_;
    Arrays arrays_;
    std::optional<CallKey> key_;
    std::unique_ptr<RequestPath> path_;
    PartialSums *const partial_sums_;  // of the path
    const AlgorithmEntry &algorithm_;
    std::string why_;
    std::unique_ptr<Operation> operation_;
    std::string explanation_;  // empty until explanation() is called
    std::atomic<bool> started_{false};
    double started_at_ = 0;  // seconds of the trace's clock
    Silence silence_;  // of the tests of this run
};

void start_several(const std::vector<std::unique_ptr<Request>> &requests);

// Starts all requests, or none.
inline void start_all(const std::vector<std::unique_ptr<Request>> &requests) {
    if (requests.size() == 1) return requests[0]->start();
    start_several(requests);
}

}  // namespace vescomm::internal
