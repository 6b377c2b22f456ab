// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, in start() and wait().
#include "perf/implementations/vescomm.h"

#include <chrono>
#include <utility>

#include "perf/case/collectives.h"
#include "perf/case/ops.h"
#include "perf/implementations/array_calls.h"
#include "perf/implementations/explained.h"

namespace vescomm::perf {
namespace {

class Stopwatch {
public:
    double microseconds() const {
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin_)
            .count();
    }

private:
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Makes the layout of a case. Every row of a tensor is one block.
Layout make_layout(const Case &what) {
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i + 1 < what.tensors.size(); ++i) {
        Tensor tensor;
        tensor.name = "tensor." + std::to_string(i);
        tensor.shape = {what.tensors[i + 1] - what.tensors[i]};
        tensor.offset = what.tensors[i];
        tensor.block = what.block;
        tensors.push_back(std::move(tensor));
    }
    return Layout(tensors, what.elements(), what.cuts);
}

class Vescomm final : public Implementation {
public:
    explicit Vescomm(Communicator &comm) : comm_(comm), rank_(comm.rank()) {}

    std::string version() const override { return std::string("vescomm ") + vescomm_get_version(); }

    Costs prepare(const Case &what) override {
        const Collective &collective = find_collective(what.collective);
        const Type &type = find_type(what.type);
        const Type &output_type = find_type(what.output_type);
        const Extent mine = collective.input(what, rank_);
        const Extent theirs = collective.output(what, rank_);
        const auto outside = [](Extent extent, const Type &of) {
            return std::vector<std::byte>(
                static_cast<std::size_t>((extent.elements() + 1) * of.bytes()));
        };
        Costs costs;
        if (only_on_arrays(collective.name)) {
            calls_ = ArrayCalls(comm_, what);
            const Stopwatch creating;
            calls_.start(request_);
            request_.wait();
            costs.create_us = creating.microseconds();
            input_ = calls_.input();
            output_ = calls_.output();
            return costs;
        }
        if (collective.name != "barrier") {
            vescomm_buffer_options_t options = vescomm_buffer_options_init();
            options.type = type.number;
            options.sharing = what.shared ? VESCOMM_PER_NODE : VESCOMM_PER_RANK;
            const Layout layout = make_layout(what);
            const Stopwatch registering;
            buffer_ = Buffer(comm_, layout, options);
            costs.register_us = registering.microseconds();
        }
        vescomm_request_options_t options = vescomm_request_options_init();
        if (collective.reduces()) options.op = find_op(what.op).number;
        if (collective.rooted) options.root = what.root;
        if (what.shared) {
            source_ = outside(mine, type);
            options.source = source_.data();
            options.type = type.number;
        }
        if (collective.reduces() && !collective.in_place) {
            result_ = outside(theirs, output_type);
            options.output = result_.data();
            options.type = output_type.number;
        }
        const Stopwatch creating;
        create(what, options);
        costs.create_us = creating.microseconds();
        take_explanation(request_.explain(), costs);
        std::byte *data = collective.name == "barrier" ? nullptr : buffer_.data<std::byte>().data();
        input_ = source_.empty() ? data + mine.begin * type.bytes() : source_.data();
        output_ = result_.empty() ? data + theirs.begin * type.bytes() : result_.data();
        shared_ = what.shared;
        return costs;
    }

    std::byte *input() override { return input_; }
    std::byte *output() override { return output_; }
    void start() override { request_.start(); }
    void wait() override { request_.wait(); }
    bool starts_non_blocking() const override { return true; }
    void settle() override {
        if (shared_) buffer_.release();
    }

    void end() override {
        request_ = {};
        calls_ = {};
        buffer_ = {};
        source_ = {};
        result_ = {};
    }

    void meet() override { comm_.barrier(); }

private:
    // Returns true for collectives that exist only on arrays. Their requests are also created once
    // and started many times; creating one starts it.
    static bool only_on_arrays(std::string_view name) {
        return name == "gather_v" || name == "scatter_v" || name == "all_to_all_v" ||
               name == "send_receive";
    }

    void create(const Case &what, const vescomm_request_options_t &options) {
        try {
            if (what.collective == "all_gather_v")
                request_ = Request::all_gather_v(comm_, buffer_, options);
            else if (what.collective == "reduce_scatter_v")
                request_ = Request::reduce_scatter_v(comm_, buffer_, options);
            else if (what.collective == "all_reduce")
                request_ = Request::all_reduce(comm_, buffer_, options);
            else if (what.collective == "broadcast")
                request_ = Request::broadcast(comm_, buffer_, options);
            else if (what.collective == "reduce")
                request_ = Request::reduce(comm_, buffer_, options);
            else if (what.collective == "barrier") request_ = Request::barrier(comm_);
            else throw Unsupported("this worker has no " + what.collective);
        } catch (const Error &error) {
            if (error.status() == VESCOMM_ERROR_UNSUPPORTED) throw Unsupported(error.what());
            throw;
        }
    }

    Communicator &comm_;
    int rank_;
    Buffer buffer_;
    Request request_;
    ArrayCalls calls_;
    std::vector<std::byte> source_;
    std::vector<std::byte> result_;
    std::byte *input_ = nullptr;
    std::byte *output_ = nullptr;
    bool shared_ = false;
};

}  // namespace

std::unique_ptr<Implementation> make_vescomm(Communicator &comm) {
    return std::make_unique<Vescomm>(comm);
}

}  // namespace vescomm::perf
