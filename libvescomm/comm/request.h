// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/buffer.h"
#include "comm/eager_buffers.h"
#include "comm/staging_buffer.h"
#include "execute/operation.h"
#include "schedule/algorithms.h"

namespace vescomm {

// A collective operation, or one side of a message: the choice of an algorithm, its schedule, and
// the operation that runs it.
class Request {
public:
    struct Options {
        Collective collective = Collective::barrier;
        vescomm_op_t op = VESCOMM_SUM;
        double factor = 0;  // of VESCOMM_PREMULTIPLIED_SUM, and only of it
        int root = 0;  // or the peer of a message
        vescomm_type_t type = VESCOMM_F32;
        const void *source = nullptr;
        void *output = nullptr;
        std::string algorithm = {};  // empty: chosen
        bool operator==(const Options &) const = default;
    };

    // On a fused buffer; `buffer` is none for a barrier. Collective, blocking.
    static std::unique_ptr<Request> create(const std::shared_ptr<StagingBuffer> &staging,
                                           const std::shared_ptr<Buffer> &buffer,
                                           const Options &options);

    // On arrays of the callers, whole or in pieces.
    struct Arrays {
        std::vector<std::int64_t> cuts;  // as of Problem
        Exchange exchange;
        std::vector<Piece> source, output;
        bool operator==(const Arrays &) const = default;
    };
    // Throws what is wrong with op, factor or root.
    static void check(const Communicator &comm, const Options &options);
    // Of `options`, source and output are not used; `type` is that of both arrays. Does not
    // communicate.
    static std::unique_ptr<Request> create(const std::shared_ptr<StagingBuffer> &staging,
                                           Arrays arrays, const Options &options);
    // A message, of which the arrays have one side.
    static std::unique_ptr<Request> create(const std::shared_ptr<EagerBuffers> &eager_buffers,
                                           Arrays arrays, const Options &options);
    ~Request();

    // Of arrays: whether other arrays of the same form would give the same operation, and to go on
    // with those. It must not be running.
    bool suits(const Options &options, const Arrays &arrays) const;
    void move_arrays(const Arrays &arrays);

    // Throws unless start() would start it.
    void require_idle() const;
    void start();
    bool test();
    void wait();
    bool running() const { return started_; }
    // Whether bytes may still move. Makes progress; a broken communicator moves none.
    bool under_way();
    const std::string &explanation();

private:
    Request() = default;

    // Made anew each time: of much data it is large, and the operation has its own.
    Schedule schedule() const;
    std::string describe() const;
    void finish();
    Run next_run();

    std::shared_ptr<Communicator> comm_;
    std::shared_ptr<Buffer> buffer_;
    std::shared_ptr<StagingBuffer> staging_;
    std::shared_ptr<EagerBuffers> eager_buffers_;
    std::shared_ptr<Memory> partial_;
    Options options_;
    Arrays arrays_;
    const AlgorithmEntry *algorithm_ = nullptr;
    std::int64_t elements_ = 0;
    std::string why_;
    Problem problem_;  // that the algorithm solves; of a message none
    std::string explanation_;
    // Of its own; none at the staging buffer or the eager_buffers. Runs are counted on from those
    // of earlier users.
    std::optional<Channel> channel_;
    std::unique_ptr<Operation> operation_;
    bool in_history_ = false;  // see Stage::next()
    bool started_ = false;
    double started_at_ = 0;
};

// Starts all of them, or none.
void start_all(const std::vector<std::unique_ptr<Request>> &requests);

}  // namespace vescomm
