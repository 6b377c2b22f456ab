// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker that measures UCC, with persistent requests on fixed memory. UCC has no fused buffers,
// so every tensor is one operation.
//
// Zone: per operation, in start() and wait().
#include <sched.h>
#include <ucc/api/ucc.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "perf/case/private_buffers.h"
#include "perf/worker/cores.h"
#include "perf/worker/serve.h"

namespace vescomm::perf {
namespace {

void check(ucc_status_t status, const char *what) {
    if (status < 0) throw std::runtime_error(std::string(what) + ": " + ucc_status_string(status));
}

// The out-of-band all-gather that UCC needs: each rank writes a file and reads those of the others.
class Files {
public:
    explicit Files(const Worker &worker)
        : folder_(worker.folder), rank_(worker.rank), ranks_(worker.ranks) {}

    ucc_oob_coll_t interface() {
        ucc_oob_coll_t oob{};
        oob.allgather = [](void *mine, void *all, std::size_t bytes, void *self, void **request) {
            *request = static_cast<Files *>(self)->begin(mine, all, bytes);
            return UCC_OK;
        };
        oob.req_test = [](void *request) {
            return static_cast<Exchange *>(request)->done() ? UCC_OK : UCC_INPROGRESS;
        };
        oob.req_free = [](void *request) {
            delete static_cast<Exchange *>(request);
            return UCC_OK;
        };
        oob.coll_info = this;
        oob.n_oob_eps = static_cast<std::uint32_t>(ranks_);
        oob.oob_ep = static_cast<std::uint32_t>(rank_);
        return oob;
    }

private:
    struct Exchange {
        std::string prefix;
        int ranks;
        char *all;
        std::size_t bytes;
        int got = 0;

        bool done() {
            for (; got < ranks; ++got) {
                std::ifstream file(prefix + std::to_string(got), std::ios::binary);
                if (!file) return false;
                file.read(all + static_cast<std::size_t>(got) * bytes,
                          static_cast<std::streamsize>(bytes));
            }
            return true;
        }
    };

    Exchange *begin(void *mine, void *all, std::size_t bytes) {
        const std::string prefix = folder_ + "/oob-" + std::to_string(++count_) + "-";
        const std::string name = prefix + std::to_string(rank_);
        std::ofstream(name + ".new", std::ios::binary)
            .write(static_cast<const char *>(mine), static_cast<std::streamsize>(bytes));
        std::filesystem::rename(name + ".new", name);
        return new Exchange{prefix, ranks_, static_cast<char *>(all), bytes};
    }

    std::string folder_;
    int rank_;
    int ranks_;
    int count_ = 0;
};

ucc_datatype_t datatype_of(const Case &what) {
    if (!find_collective(what.collective).reduces()) {
        constexpr ucc_datatype_t by_size[] = {UCC_DT_UINT8, UCC_DT_UINT8, UCC_DT_UINT16,
                                              UCC_DT_UINT8, UCC_DT_UINT32};
        const std::int64_t bytes = find_type(what.type).bytes();
        if (bytes == 16) return UCC_DT_UINT128;
        return bytes == 8 ? UCC_DT_UINT64 : by_size[bytes];
    }
    if (what.output_type != what.type) throw Unsupported("UCC leaves the type as it is");
    if (what.type == "f32") return UCC_DT_FLOAT32;
    if (what.type == "bf16") return UCC_DT_BFLOAT16;
    if (what.type == "f16") return UCC_DT_FLOAT16;
    if (what.type == "f64") return UCC_DT_FLOAT64;
    throw Unsupported("this worker does not combine " + what.type);
}

ucc_reduction_op_t op_of(const Case &what) {
    if (what.op == "prod") return UCC_OP_PROD;
    if (what.op == "min") return UCC_OP_MIN;
    if (what.op == "max") return UCC_OP_MAX;
    if (what.op == "avg") return UCC_OP_AVG;
    if (what.op == "sum" || what.op == "none") return UCC_OP_SUM;
    throw Unsupported("UCC runs here without " + what.op);
}

class Ucc final : public Implementation {
public:
    explicit Ucc(const Worker &worker)
        : rank_(worker.rank), crowded_(more_ranks_than_cores(worker.ranks)), files_(worker) {
        ucc_lib_config_h lib_config;
        check(ucc_lib_config_read(nullptr, nullptr, &lib_config), "reading UCC's settings");
        ucc_lib_params_t lib_params{};
        lib_params.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE;
        lib_params.thread_mode = UCC_THREAD_SINGLE;
        check(ucc_init(&lib_params, lib_config, &lib_), "ucc_init");
        ucc_lib_config_release(lib_config);
        ucc_context_config_h context_config;
        check(ucc_context_config_read(lib_, nullptr, &context_config), "reading UCC's settings");
        ucc_context_params_t context_params{};
        context_params.mask = UCC_CONTEXT_PARAM_FIELD_OOB;
        context_params.oob = files_.interface();
        check(ucc_context_create(lib_, &context_params, context_config, &context_),
              "ucc_context_create");
        ucc_context_config_release(context_config);
        ucc_team_params_t team_params{};
        team_params.mask = UCC_TEAM_PARAM_FIELD_OOB;
        team_params.oob = files_.interface();
        check(ucc_team_create_post(&context_, 1, &team_params, &team_), "ucc_team_create_post");
        ucc_status_t status;
        while ((status = ucc_team_create_test(team_)) == UCC_INPROGRESS)
            ucc_context_progress(context_);
        check(status, "ucc_team_create_test");
    }

    std::string version() const override { return std::string("UCC ") + ucc_get_version_string(); }

    Costs prepare(const Case &what) override {
        non_blocking_ = what.non_blocking;
        if (what.shared) throw Unsupported("UCC has a result for each rank");
        buffers_ = PrivateBuffers(what, rank_);
        calls_.clear();
        for (const Part &part : parts_of(what))
            if (what.collective == "barrier" || part.elements > 0)
                calls_.push_back(make_call(what, part));
        const auto begin = std::chrono::steady_clock::now();
        for (const auto &call : calls_) create(*call);
        const auto end = std::chrono::steady_clock::now();
        Costs costs;
        costs.create_us = std::chrono::duration<double, std::micro>(end - begin).count();
        return costs;
    }

    std::byte *input() override { return buffers_.input(); }
    std::byte *output() override { return buffers_.output(); }

    // Runs one tensor after another, unless start() must not block.
    void start() override {
        for (const auto &call : calls_) {
            check(ucc_collective_post(call->request), "ucc_collective_post");
            if (!non_blocking_) complete(*call);
        }
    }
    void wait() override {
        if (!non_blocking_) return;
        for (const auto &call : calls_) complete(*call);
    }
    bool starts_non_blocking() const override { return non_blocking_; }

    void end() override {
        for (const auto &call : calls_) ucc_collective_finalize(call->request);
        calls_.clear();
        buffers_ = {};
    }

    void progress() override { ucc_context_progress(context_); }
    void meet() override {}

private:
    struct Call {
        ucc_coll_args_t arguments{};
        std::vector<std::uint64_t> counts;
        std::vector<std::uint64_t> begins;
        std::vector<std::uint64_t> output_counts;  // all_to_all_v only
        std::vector<std::uint64_t> output_begins;
        ucc_coll_req_h request = nullptr;
    };

    std::unique_ptr<Call> make_call(const Case &what, const Part &part) {
        auto call = std::make_unique<Call>();
        ucc_coll_args_t &arguments = call->arguments;
        const ucc_datatype_t type = datatype_of(what);
        const std::int64_t bytes = find_type(what.type).bytes();
        std::byte *data = buffers_.whole() + part.first * bytes;
        const auto put = [](std::vector<std::uint64_t> &to, std::int64_t value) {
            to.push_back(static_cast<std::uint64_t>(value));
        };
        for (int rank = 0; rank < what.ranks(); ++rank) {
            put(call->counts, part.counts[rank]);
            put(call->begins, part.begins[rank] - part.first);
            put(call->output_counts, part.counts[rank_]);
            put(call->output_begins, rank * what.shard(rank_) + part.in_shard[rank_]);
        }
        const ucc_coll_buffer_info_t whole{data, static_cast<std::uint64_t>(part.elements), type,
                                           UCC_MEMORY_TYPE_HOST};
        arguments.mask = UCC_COLL_ARGS_FIELD_FLAGS;
        arguments.flags = UCC_COLL_ARGS_FLAG_PERSISTENT | UCC_COLL_ARGS_FLAG_COUNT_64BIT |
                          UCC_COLL_ARGS_FLAG_DISPLACEMENTS_64BIT;
        arguments.op = op_of(what);
        if (what.collective == "all_gather_v") {
            arguments.coll_type = UCC_COLL_TYPE_ALLGATHERV;
            arguments.flags |= UCC_COLL_ARGS_FLAG_IN_PLACE;
            arguments.dst.info_v = by_rank(data, call->counts, call->begins, type);
        } else if (what.collective == "reduce_scatter_v") {
            arguments.coll_type = UCC_COLL_TYPE_REDUCE_SCATTERV;
            arguments.src.info = whole;
            arguments.dst.info_v = by_rank(buffers_.output() + part.in_shard[rank_] * bytes,
                                           call->counts, call->begins, type);
        } else if (what.collective == "all_to_all_v") {
            arguments.coll_type = UCC_COLL_TYPE_ALLTOALLV;
            arguments.src.info_v = by_rank(data, call->counts, call->begins, type);
            arguments.dst.info_v =
                by_rank(buffers_.output(), call->output_counts, call->output_begins, type);
        } else if (what.collective == "all_reduce") {
            arguments.coll_type = UCC_COLL_TYPE_ALLREDUCE;
            arguments.flags |= UCC_COLL_ARGS_FLAG_IN_PLACE;
            arguments.dst.info = whole;
        } else if (what.collective == "broadcast") {
            arguments.coll_type = UCC_COLL_TYPE_BCAST;
            arguments.root = static_cast<std::uint64_t>(what.root);
            arguments.src.info = whole;
        } else if (what.collective == "barrier") {
            arguments.coll_type = UCC_COLL_TYPE_BARRIER;
        } else {
            throw Unsupported("this worker has no " + what.collective);
        }
        return call;
    }

    static ucc_coll_buffer_info_v_t by_rank(std::byte *data, std::vector<std::uint64_t> &counts,
                                            std::vector<std::uint64_t> &begins,
                                            ucc_datatype_t type) {
        return {data, counts.data(), begins.data(), type, UCC_MEMORY_TYPE_HOST};
    }

    void create(Call &call) {
        const ucc_status_t status = ucc_collective_init(&call.arguments, &call.request, team_);
        if (status == UCC_ERR_NOT_SUPPORTED || status == UCC_ERR_NOT_IMPLEMENTED)
            throw Unsupported(std::string("UCC says: ") + ucc_status_string(status));
        check(status, "ucc_collective_init");
    }

    void complete(const Call &call) {
        ucc_status_t status;
        while ((status = ucc_collective_test(call.request)) == UCC_INPROGRESS) {
            ucc_context_progress(context_);
            if (crowded_) sched_yield();
        }
        check(status, "ucc_collective_test");
    }

    int rank_;
    bool crowded_;
    bool non_blocking_ = false;
    Files files_;
    ucc_lib_h lib_ = nullptr;
    ucc_context_h context_ = nullptr;
    ucc_team_h team_ = nullptr;
    PrivateBuffers buffers_;
    std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace
}  // namespace vescomm::perf

int main() {
    return vescomm::perf::serve("ucc", [](const vescomm::perf::Worker &worker) {
        return std::make_unique<vescomm::perf::Ucc>(worker);
    });
}
