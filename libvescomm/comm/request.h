// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "comm/buffer.h"
#include "execute/operation.h"
#include "schedule/algorithms.h"

namespace vescomm {

// A collective operation on a buffer: the choice of an algorithm, its schedule, and the operation
// that runs it.
class Request {
public:
    struct Options {
        Collective collective = Collective::barrier;
        vescomm_op_t op = VESCOMM_SUM;
        int root = 0;
        vescomm_type_t type = VESCOMM_F32;
        const void *source = nullptr;
        void *output = nullptr;
        std::string algorithm = {};  // empty: chosen
    };

    // Collective, blocking. `buffer` is none for a barrier.
    static std::unique_ptr<Request> create(const std::shared_ptr<Communicator> &comm,
                                           const std::shared_ptr<Buffer> &buffer,
                                           const Options &options);
    ~Request();

    void start();
    bool test();
    void wait();
    bool running() const;
    // Whether bytes may still move. Makes progress; a broken communicator moves none.
    bool under_way();
    const std::string &explanation();

private:
    Request() = default;

    std::string describe() const;
    void finish();

    std::shared_ptr<Communicator> comm_;
    std::shared_ptr<Buffer> buffer_;
    std::shared_ptr<Memory> scratch_;
    Options options_;
    const AlgorithmEntry *algorithm_ = nullptr;
    Schedule schedule_;
    std::string why_;
    std::string explanation_;
    std::unique_ptr<Operation> operation_;
    bool started_ = false;
    double started_at_ = 0;
};

}  // namespace vescomm
