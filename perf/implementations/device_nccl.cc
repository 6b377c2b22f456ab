// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, in operate().
#include "perf/implementations/device_nccl.h"

#include <map>

#include "gpu/nccl_types.h"
#include "perf/case/collectives.h"
#include "perf/case/ops.h"
#include "perf/implementations/device.h"

namespace vescomm::perf {
namespace {

nccl::Op nccl_op(const std::string &name) {
    static const std::map<std::string, nccl::Op> known = {{"sum", nccl::sum},
                                                          {"prod", nccl::prod},
                                                          {"min", nccl::min},
                                                          {"max", nccl::max},
                                                          {"avg", nccl::average}};
    const auto found = known.find(name);
    if (found == known.end()) throw Unsupported("NCCL has no operator " + name);
    return found->second;
}

class NcclOnDevice final : public DeviceImplementation {
public:
    NcclOnDevice(NcclWay way, const Worker &worker)
        : DeviceImplementation(worker), way_(way), rank_(worker.rank), ranks_(worker.ranks) {
        nccl::UniqueId id{};
        if (rank_ == 0) require(library().get_unique_id(&id), "ncclGetUniqueId()");
        check(vescomm_broadcast(comm().get(), &id, sizeof id, VESCOMM_U8, 0, nullptr, nullptr,
                                nullptr));
        nccl::Config config;
        require(library().comm_init_rank_config(&nccl_, ranks_, id, rank_, &config),
                "ncclCommInitRankConfig()");
    }
    ~NcclOnDevice() override { library().comm_destroy(nccl_); }

private:
    const nccl::Library &library() const { return functions().nccl; }
    void require(nccl::Result result, const char *call) const {
        functions().require_nccl(result, call);
    }
    bool ragged() const {
        return what().collective == "all_gather_v" || what().collective == "reduce_scatter_v";
    }
    bool equal() const { return what().largest_shard() * ranks_ == what().elements(); }

    // `unit_`: elements of NCCL's type in an element. Bytes move as bytes where NCCL has no type.
    void create(Costs &) override {
        const Collective &row = find_collective(what().collective);
        if (way_ == NcclWay::equal && ragged() && !equal())
            throw Unsupported("NCCL has no " + what().collective + " with unequal shards");
        if (way_ != NcclWay::equal && !ragged())
            throw Unsupported("it is the same as nccl for " + what().collective);
        const auto reduced = nccl::reduced_type(find_type(what().type).number);
        if (row.reduces() && !reduced)
            throw Unsupported("NCCL does not reduce " + what().type + " on every GPU");
        type_ = row.reduces() ? *reduced : nccl::u8;
        unit_ = row.reduces() ? 1 : element();
        if (row.reduces()) op_ = nccl_op(what().op);
        largest_ = count(what().largest_shard());
        if (way_ == NcclWay::padded && !equal())
            padded_ = static_cast<std::byte *>(allocate(
                static_cast<std::size_t>(what().largest_shard() * ranks_ * element()) + 16));
    }

    void destroy() override {
        if (padded_ != nullptr) release(padded_);
        padded_ = nullptr;
    }

    std::size_t count(std::int64_t elements) const {
        return static_cast<std::size_t>(elements * unit_);
    }
    std::size_t bytes_of(int rank) const {
        return static_cast<std::size_t>(what().shard(rank) * element());
    }
    std::byte *shard(int rank) const { return whole() + what().cuts[rank] * element(); }
    std::byte *padded(int rank) const {
        return padded_ + rank * what().largest_shard() * element();
    }

    void operate() override {
        const std::string &name = what().collective;
        if (name == "all_reduce")
            require(library().all_reduce(source(), target(), count(what().elements()), type_, op_,
                                         nccl_, stream()),
                    "ncclAllReduce()");
        else if (name == "broadcast")
            require(library().broadcast(source(), target(), count(what().elements()), type_,
                                        what().root, nccl_, stream()),
                    "ncclBroadcast()");
        else if (name == "reduce")
            require(library().reduce(source(), target(), count(what().elements()), type_, op_,
                                     what().root, nccl_, stream()),
                    "ncclReduce()");
        else if (name == "all_to_all_v") exchange();
        else if (way_ == NcclWay::grouped) group();
        else if (padded_ == nullptr) move_equal(source(), target());
        else if (name == "all_gather_v") gather_padded();
        else reduce_padded();
    }

    void move_equal(const std::byte *from, std::byte *to) {
        if (largest_ == 0) return;
        if (what().collective == "all_gather_v")
            require(library().all_gather(from, to, largest_, type_, nccl_, stream()),
                    "ncclAllGather()");
        else
            require(library().reduce_scatter(from, to, largest_, type_, op_, nccl_, stream()),
                    "ncclReduceScatter()");
    }

    void gather_padded() {
        copy(padded(rank_), source(), bytes_of(rank_));
        move_equal(padded(rank_), padded_);
        for (int rank = 0; rank < ranks_; ++rank)
            if (rank != rank_ || !what().in_place) copy(shard(rank), padded(rank), bytes_of(rank));
    }

    // The padding holds any data: its sums are not used.
    void reduce_padded() {
        for (int rank = 0; rank < ranks_; ++rank) copy(padded(rank), shard(rank), bytes_of(rank));
        move_equal(padded_, padded(rank_));
        copy(target(), padded(rank_), bytes_of(rank_));
    }

    void copy(std::byte *to, const std::byte *from, std::size_t bytes) {
        if (bytes == 0) return;
        functions().require(
            functions().memcpy_async(to, from, bytes, cuda::copy_device_to_device, stream()),
            "cudaMemcpyAsync()");
    }

    void group() {
        require(library().group_start(), "ncclGroupStart()");
        for (int rank = 0; rank < ranks_; ++rank) {
            const std::size_t elements = count(what().shard(rank));
            if (elements == 0) continue;
            const bool mine = rank == rank_;
            if (what().collective == "all_gather_v")
                require(library().broadcast(mine ? source() : shard(rank), shard(rank), elements,
                                            type_, rank, nccl_, stream()),
                        "ncclBroadcast()");
            else
                require(library().reduce(shard(rank), mine ? target() : shard(rank), elements,
                                         type_, op_, rank, nccl_, stream()),
                        "ncclReduce()");
        }
        require(library().group_end(), "ncclGroupEnd()");
    }

    // As in nccl-tests, with unequal counts.
    void exchange() {
        require(library().group_start(), "ncclGroupStart()");
        for (int rank = 0; rank < ranks_; ++rank) {
            if (bytes_of(rank) > 0)
                require(
                    library().send(shard(rank), bytes_of(rank), nccl::u8, rank, nccl_, stream()),
                    "ncclSend()");
            const std::size_t bytes = bytes_of(rank_);
            if (bytes > 0)
                require(library().recv(target() + static_cast<std::size_t>(rank) * bytes, bytes,
                                       nccl::u8, rank, nccl_, stream()),
                        "ncclRecv()");
        }
        require(library().group_end(), "ncclGroupEnd()");
    }

    void *allocate(std::size_t bytes) override {
        void *memory = nullptr;
        bytes =
            (bytes + nccl::window_alignment - 1) / nccl::window_alignment * nccl::window_alignment;
        require(library().mem_alloc(&memory, bytes), "ncclMemAlloc()");
        nccl::Window window = nullptr;
        require(
            library().comm_window_register(nccl_, memory, bytes, &window, nccl::window_symmetric),
            "ncclCommWindowRegister()");
        windows_[memory] = window;
        return memory;
    }

    void release(void *memory) override {
        wait();
        comm().barrier();
        if (const nccl::Window window = windows_[memory])
            require(library().comm_window_deregister(nccl_, window), "ncclCommWindowDeregister()");
        windows_.erase(memory);
        require(library().mem_free(memory), "ncclMemFree()");
    }

    const NcclWay way_;
    const int rank_, ranks_;
    nccl::Comm nccl_ = nullptr;
    nccl::Type type_ = 0;
    nccl::Op op_ = 0;
    std::int64_t unit_ = 1;
    std::size_t largest_ = 0;  // count of the largest shard
    std::byte *padded_ = nullptr;  // shards of the largest size; nullptr: equal shards
    std::map<void *, nccl::Window> windows_;  // of allocated memory
};

}  // namespace

std::unique_ptr<Implementation> make_nccl_on_device(NcclWay way, const Worker &worker) {
    return std::make_unique<NcclOnDevice>(way, worker);
}

}  // namespace vescomm::perf
