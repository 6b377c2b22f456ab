// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/device_communicator.h"

namespace vescomm::internal::device {

// A group of NCCL's calls, which start together when it ends. A failure within the group is
// reported when the group has ended: NCCL can neither be waited for nor aborted while a group is
// open.
class NcclGroup {
public:
    explicit NcclGroup(DeviceCommunicator &comm) : comm_(comm) {
        comm_.require(comm_.libraries().nccl.group_start(), "ncclGroupStart()");
        open_ = true;
    }
    ~NcclGroup() {
        if (open_) comm_.libraries().nccl.group_end();
    }
    NcclGroup(const NcclGroup &) = delete;
    NcclGroup &operator=(const NcclGroup &) = delete;

    // Adds a call of NCCL, unless an earlier one has failed.
    template <typename Call>
    void add(const char *function, const Call &call) {
        if (failed_ != nullptr) return;
        const nccl::Result result = call();
        if (result == nccl::success || result == nccl::in_progress) return;
        failed_ = function;
        failure_ = result;
    }

    void end() {
        open_ = false;
        const nccl::Result result = comm_.watched(comm_.libraries().nccl.group_end);
        if (failed_ != nullptr) comm_.require(failure_, failed_);
        comm_.require(result, "ncclGroupEnd()");
    }

private:
    DeviceCommunicator &comm_;
    bool open_ = false;
    const char *failed_ = nullptr;  // function of the first call that failed
    nccl::Result failure_ = nccl::success;
};

}  // namespace vescomm::internal::device
