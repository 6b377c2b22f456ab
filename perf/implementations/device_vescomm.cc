// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, in operate().
#include "perf/implementations/device_vescomm.h"

#include <chrono>
#include <utility>
#include <vector>

#include "perf/case/ops.h"
#include "perf/implementations/device.h"
#include "perf/implementations/device_explained.h"
#include "vescomm/gpu.h"

namespace vescomm::perf {
namespace {

class VescommOnDevice final : public DeviceImplementation {
public:
    explicit VescommOnDevice(const Worker &worker)
        : DeviceImplementation(worker), rank_(worker.rank) {
        vescomm_gpu_comm_options_t options = vescomm_gpu_comm_options_init();
        options.workspace_bytes = worker.padded_bytes;
        check(vescomm_gpu_comm_create(comm().get(), &options, &gpu_));
    }
    ~VescommOnDevice() override { vescomm_gpu_comm_free(gpu_); }

    std::string version() const override {
        return "vescomm " + std::string(vescomm_get_version()) + ", " +
               DeviceImplementation::version();
    }

private:
    void create(Costs &costs) override {
        if (what().collective == "reduce")
            throw Unsupported("vescomm has no reduce on device memory");
        if (what().collective == "broadcast" && !what().in_place)
            throw Unsupported("vescomm_gpu_broadcast() works in place");
        std::vector<std::int64_t> counts;
        for (int rank = 0; rank < what().ranks(); ++rank) counts.push_back(what().shard(rank));
        layout_ = Layout::from_counts(counts);
        received_.assign(counts.size(), what().shard(rank_));
        sent_ = std::move(counts);
        type_ = find_type(what().type).number;
        if (what().op != "none") op_ = find_op(what().op).number;
        const auto begin = std::chrono::steady_clock::now();
        // The first operation connects. It rejects types and operators that NCCL lacks.
        const vescomm_status_t status = run();
        if (status == VESCOMM_ERROR_UNSUPPORTED) throw Unsupported(vescomm_get_last_error());
        check(status);
        check(vescomm_gpu_wait(gpu_, stream()));
        costs.create_us =
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                .count();
        const char *text = nullptr;
        const bool scatters = what().collective == "reduce_scatter_v";
        if (!scatters && what().collective != "all_gather_v") return;
        check(vescomm_gpu_explain(gpu_, layout_.get(), type_, scatters ? 1 : 0, &text));
        take_device_explanation(text, costs);
    }

    void operate() override { check(run()); }

    vescomm_status_t run() {
        const std::string &name = what().collective;
        if (name == "all_gather_v")
            return vescomm_gpu_all_gather_v(gpu_, layout_.get(), type_,
                                            what().in_place ? nullptr : source(), target(),
                                            stream());
        if (name == "reduce_scatter_v")
            return vescomm_gpu_reduce_scatter_v(gpu_, layout_.get(), type_, op_, source(),
                                                what().in_place ? nullptr : target(), stream());
        if (name == "all_reduce")
            return vescomm_gpu_all_reduce(gpu_, source(), target(), what().elements(), type_, op_,
                                          stream());
        if (name == "all_to_all_v")
            return vescomm_gpu_all_to_all_v(gpu_, source(), sent_.data(), nullptr, target(),
                                            received_.data(), nullptr, type_, stream());
        return vescomm_gpu_broadcast(gpu_, target(), what().elements(), type_, what().root,
                                     stream());
    }

    void *allocate(std::size_t bytes) override {
        void *memory = nullptr;
        check(vescomm_gpu_malloc(gpu_, bytes, &memory));
        return memory;
    }
    void release(void *memory) override { check(vescomm_gpu_mfree(gpu_, memory)); }

    vescomm_gpu_comm_t *gpu_ = nullptr;
    const int rank_;
    Layout layout_;
    std::vector<std::int64_t> sent_, received_;  // elements for each rank, and from it
    vescomm_type_t type_ = VESCOMM_F32;
    vescomm_op_t op_ = VESCOMM_SUM;
};

}  // namespace

std::unique_ptr<Implementation> make_vescomm_on_device(const Worker &worker) {
    return std::make_unique<VescommOnDevice>(worker);
}

}  // namespace vescomm::perf
