// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "comm/memory.h"
#include "comm/request_options.h"
#include "schedule/algorithms.h"
#include "simulate/select.h"

namespace vescomm::internal {

// The way that the bytes of a request take: in a buffer, through the staging buffer, or through
// eager buffers. It numbers the runs of the request.
class RequestPath {
public:
    virtual ~RequestPath() = default;

    // The next run of the operation. Takes a slot if the path has slots.
    virtual Run next(const Operation &operation) = 0;
    // The partial sums that the runs use and share with other requests; nullptr: none.
    virtual PartialSums *partial_sums() const noexcept { return nullptr; }
    // The operation has ended after `runs` runs.
    virtual void end(std::uint64_t /* runs */) noexcept {}

    // The schedule of this rank. Computed by each call, because a large schedule takes much memory.
    virtual Schedule schedule() const = 0;
    // Seconds that the machine model predicts. Nothing: there is no prediction.
    virtual std::optional<double> predict() const { return {}; }
    // The object of the request, for sentences: ` of "name"`, ` of 10 f32 to rank 3`.
    virtual std::string object() const = 0;
};

// Paths of collectives.
class CollectivePath : public RequestPath {
public:
    CollectivePath(Communicator &comm, const AlgorithmEntry &algorithm, AnyProblem problem,
                   const ElementBytes &bytes)
        : comm_(comm), algorithm_(algorithm), problem_(std::move(problem)), bytes_(bytes) {}

    Schedule schedule() const override;
    std::optional<double> predict() const override;

protected:
    Communicator &comm_;  // the request owns a reference to it
    const AlgorithmEntry &algorithm_;
    const AnyProblem problem_;
    const ElementBytes bytes_;
};

// ---- shared by the functions that create requests ----

// Bytes of the last-level cache that the cores of a node can count on. Virtual machines report the
// cache of their host.
inline constexpr std::uint64_t last_level_cache = 32 << 20;

// An algorithm that must be used. A choice of the caller takes precedence over the variable.
struct AlgorithmOverride {
    std::string_view algorithm;  // empty: no override
    std::string_view variable;  // the environment variable that gives it; empty: the caller does
};
AlgorithmOverride override_of(const Communicator &comm, const RequestOptions &options);

ElementBytes bytes_of(vescomm_type_t type);

// The bindings that depend neither on a schedule nor on memory.
Bindings bindings_of(Communicator &comm, const RequestOptions &options);

}  // namespace vescomm::internal
