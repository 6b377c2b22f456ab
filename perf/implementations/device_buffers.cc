// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, in operate().
#include "perf/implementations/device_buffers.h"

#include <algorithm>

#include "perf/case/ops.h"
#include "perf/implementations/device.h"
#include "perf/implementations/device_explained.h"
#include "vescomm/gpu.h"

namespace vescomm::perf {
namespace {

class BuffersOnDevice final : public DeviceImplementation {
public:
    BuffersOnDevice(const char *method, const Worker &worker) : DeviceImplementation(worker) {
        vescomm_gpu_comm_options_t options = vescomm_gpu_comm_options_init();
        options.workspace_bytes = worker.padded_bytes;
        options.method = method;
        check(vescomm_gpu_comm_create(comm().get(), &options, &gpu_));
    }
    ~BuffersOnDevice() override { vescomm_gpu_comm_free(gpu_); }

    std::string version() const override {
        return "vescomm " + std::string(vescomm_get_version()) + ", " +
               DeviceImplementation::version();
    }

private:
    void create(Costs &costs) override {
        gathers_ = what().collective == "all_gather_v";
        if (!gathers_ && what().collective != "reduce_scatter_v")
            throw Unsupported("device buffers have no " + what().collective);
        if (!what().in_place) throw Unsupported("device buffers work in place");
        std::vector<std::int64_t> counts;
        for (int rank = 0; rank < what().ranks(); ++rank) counts.push_back(what().shard(rank));
        if (what().op != "none") op_ = find_op(what().op).number;
        vescomm_gpu_buffer_options_t options = vescomm_gpu_buffer_options_init();
        options.type = find_type(what().type).number;
        options.memory = whole();
        options.any_cuts = 1;
        const Layout layout = Layout::from_counts(counts);
        check(vescomm_gpu_buffer_create(gpu_, layout.get(), &options, &buffer_));
        const vescomm_status_t status = run();
        if (status == VESCOMM_ERROR_UNSUPPORTED) throw Unsupported(vescomm_get_last_error());
        check(status);
        check(vescomm_gpu_wait(gpu_, stream()));
        const char *text = nullptr;
        check(vescomm_gpu_buffer_explain(buffer_, gathers_ ? 0 : 1, &text));
        take_device_explanation(text, costs);
    }

    void destroy() override {
        if (buffer_ != nullptr) check(vescomm_gpu_buffer_free(buffer_));
        buffer_ = nullptr;
    }

    void operate() override { check(run()); }

    vescomm_status_t run() {
        return gathers_ ? vescomm_gpu_buffer_all_gather_v(&buffer_, 1, stream())
                        : vescomm_gpu_buffer_reduce_scatter_v(&buffer_, 1, op_, stream());
    }

    // Buffers may have memory behind their last shard.
    void *allocate(std::size_t bytes) override {
        void *memory = nullptr;
        check(vescomm_gpu_malloc(gpu_, bytes + std::max<std::size_t>(4096, bytes / 8), &memory));
        return memory;
    }
    void release(void *memory) override { check(vescomm_gpu_mfree(gpu_, memory)); }

    vescomm_gpu_comm_t *gpu_ = nullptr;
    vescomm_gpu_buffer_t *buffer_ = nullptr;
    bool gathers_ = false;
    vescomm_op_t op_ = VESCOMM_SUM;
};

}  // namespace

std::unique_ptr<Implementation> make_buffers_on_device(const char *method, const Worker &worker) {
    return std::make_unique<BuffersOnDevice>(method, worker);
}

}  // namespace vescomm::perf
