// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/engine/converted_pieces.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "execute/kernels.h"
#include "fsdp/spec/group.h"
#include "fsdp/spec/masters.h"

namespace vescomm::fsdp {

namespace {

// Each read of a part verifies the checksums of whole chunks, of which it may share two with
// others.
constexpr std::int64_t elements_at_a_time = std::int64_t{1} << 22;

// There is no kernel between bf16 and f16. Widening is exact, so this rounds once.
void convert(std::byte *to, vescomm_type_t to_type, const std::byte *from, vescomm_type_t from_type,
             std::size_t count) {
    if (to_type == VESCOMM_F32 || from_type == VESCOMM_F32)
        return internal::kernels().convert(to, to_type, from, from_type, count);
    constexpr std::size_t part = 4096;
    float wide[part];
    for (std::size_t done = 0; done < count; done += part) {
        const std::size_t elements = std::min(part, count - done);
        internal::kernels().convert(wide, VESCOMM_F32,
                                    from + done * vescomm_type_get_bytes(from_type), from_type,
                                    elements);
        internal::kernels().convert(to + done * vescomm_type_get_bytes(to_type), to_type, wide,
                                    VESCOMM_F32, elements);
    }
}

}  // namespace

vescomm_type_t stored_type(const checkpoint::Catalogue &catalogue,
                           const checkpoint::Tensor &wanted) {
    const auto found = catalogue.tensors().find({wanted.role, wanted.name});
    if (wanted.role != master_role || found == catalogue.tensors().end()) return wanted.type;
    const vescomm_type_t stored = found->second.tensor.type;
    return is_master_type(stored) ? stored : wanted.type;
}

void read_converted(checkpoint::Checkpoint &opened, std::span<const ConvertedPiece> pieces) {
    std::vector<std::byte> stored;
    for (const ConvertedPiece &converted : pieces) {
        checkpoint::WantedPiece part = converted.piece;
        const vescomm_type_t type = part.tensor.type;
        auto *to = static_cast<std::byte *>(converted.piece.data);
        for (std::int64_t done = 0; done < converted.piece.count; done += part.count) {
            part.first = converted.piece.first + done;
            part.count = std::min(elements_at_a_time, converted.piece.count - done);
            const auto count = static_cast<std::size_t>(part.count);
            stored.resize(count * vescomm_type_get_bytes(type));
            part.data = stored.data();
            opened.read({&part, 1});
            convert(to, converted.type, stored.data(), type, count);
            to += count * vescomm_type_get_bytes(converted.type);
        }
    }
}

}  // namespace vescomm::fsdp
