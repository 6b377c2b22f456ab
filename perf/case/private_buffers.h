// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "perf/case/collectives.h"

namespace vescomm::perf {

// Memory of one rank for libraries that work on any memory: the whole buffer, and a separate result
// if the operation is not in place.
class PrivateBuffers {
public:
    using Bytes = std::shared_ptr<std::byte>;
    // Allocates zeroed bytes.
    using Allocate = std::function<Bytes(std::size_t)>;

    PrivateBuffers() = default;
    PrivateBuffers(const Case &what, int rank, const Allocate &allocate = on_heap) {
        const Collective &collective = find_collective(what.collective);
        const std::int64_t element = find_type(what.type).bytes();
        const Extent mine = collective.input(what, rank);
        const Extent theirs = collective.output(what, rank);
        whole_ = allocate(static_cast<std::size_t>(bytes_with_input(what)) + 64);
        input_ = mine.begin * element;
        output_ = theirs.begin * element;
        if (collective.in_place) return;
        result_ = allocate(static_cast<std::size_t>(theirs.elements() * element) + 64);
        in_place_ = false;
    }

    static Bytes on_heap(std::size_t bytes) {
        const auto made = std::make_shared<std::vector<std::byte>>(bytes);
        return {made, made->data()};
    }

    std::byte *whole() { return whole_.get(); }
    std::byte *input() { return whole_.get() + input_; }
    std::byte *output() { return in_place_ ? whole_.get() + output_ : result_.get(); }

private:
    Bytes whole_, result_;
    std::int64_t input_ = 0;
    std::int64_t output_ = 0;
    bool in_place_ = true;
};

}  // namespace vescomm::perf
