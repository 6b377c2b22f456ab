// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, in start().
#include "perf/implementations/arrays.h"

#include "perf/implementations/array_calls.h"
#include "perf/implementations/explained.h"

namespace vescomm::perf {
namespace {

class Arrays final : public Implementation {
public:
    Arrays(Communicator &comm, bool registered) : comm_(comm), registered_(registered) {}

    std::string version() const override { return std::string("vescomm ") + vescomm_get_version(); }

    Costs prepare(const Case &what) override {
        calls_ = ArrayCalls(comm_, what, registered_);
        non_blocking_ = what.non_blocking && what.collective != "barrier";
        Costs costs;
        if (what.collective == "barrier") return costs;
        // Run once as a request, because a request can be explained.
        Request request;
        calls_.start(request);
        take_explanation(request.explain(), costs);
        request.wait();
        return costs;
    }

    std::byte *input() override { return calls_.input(); }
    std::byte *output() override { return calls_.output(); }
    void start() override {
        if (non_blocking_) calls_.start(request_);
        else calls_.run();
    }
    void wait() override {
        if (!non_blocking_) return;
        request_.wait();
        request_ = {};
    }
    bool starts_non_blocking() const override { return non_blocking_; }
    void end() override { calls_ = {}; }
    void meet() override { comm_.barrier(); }

private:
    Communicator &comm_;
    const bool registered_;
    ArrayCalls calls_;
    Request request_;
    bool non_blocking_ = false;
};

}  // namespace

std::unique_ptr<Implementation> make_arrays(Communicator &comm, bool registered) {
    return std::make_unique<Arrays>(comm, registered);
}

}  // namespace vescomm::perf
