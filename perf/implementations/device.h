// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives on the memory of GPUs, as calls on a stream.
//
//     host                     GPU of the rank
//     input()  ──────copy────► source ──┐
//                                       │ operate(), on the stream
//     output() ◄─────copy───── target ◄─┘
//
// The copies are not timed. Memory is registered with NCCL: `whole` holds the buffer, and `part`
// the source or the result beside it if the operation is not in place.
#pragma once

#include <string>
#include <vector>

#include "perf/implementations/device_functions.h"
#include "perf/worker/serve.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::perf {

class DeviceImplementation : public Implementation {
public:
    // Collective. The calling thread uses the GPU of the rank from now on.
    explicit DeviceImplementation(const Worker &worker);
    ~DeviceImplementation() override;

    std::string version() const override;
    Costs prepare(const Case &what) final;
    std::byte *input() final { return host_input_.data(); }
    void input_written() final;
    std::byte *output() final;
    void start() final { operate(); }
    void wait() final;
    bool starts_non_blocking() const final { return true; }
    bool has_stream() const final { return true; }
    void end() final;
    void meet() final { comm_.barrier(); }

protected:
    // Creates the operation. Throws Unsupported.
    virtual void create(Costs &costs) = 0;
    // Puts the operation on the stream.
    virtual void operate() = 0;
    virtual void destroy() {}
    // Registered memory, of the same size on every rank.
    virtual void *allocate(std::size_t bytes) = 0;
    virtual void release(void *memory) = 0;

    const DeviceFunctions &functions() const { return functions_; }
    Communicator &comm() { return comm_; }
    const Case &what() const { return what_; }
    cuda::Stream stream() const { return stream_; }
    std::int64_t element() const { return find_type(what_.type).bytes(); }
    std::byte *whole() const { return whole_; }
    std::byte *source() const { return source_; }
    std::byte *target() const { return target_; }

private:
    void place();

    const DeviceFunctions &functions_;
    Communicator comm_;
    int device_;
    cuda::Stream stream_ = nullptr;
    Case what_;
    std::vector<std::byte> host_input_, host_output_;
    std::byte *whole_ = nullptr, *part_ = nullptr;
    std::byte *source_ = nullptr, *target_ = nullptr;
};

}  // namespace vescomm::perf
