// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// AdamW with moments in 8 bits as an optimizer kind; adam8bit.h has the codes.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fsdp/adamw.h"
#include "fsdp/optimizers/adam8bit.h"
#include "fsdp/optimizers/adamw_settings.h"
#include "fsdp/optimizers/settings.h"
#include "vescomm/optimizer.h"

namespace vescomm::fsdp {

namespace {

constexpr auto block = static_cast<std::int64_t>(adam8bit_block);

int needs(void *, const void *settings, vescomm_optimizer_needs_t *needs,
          const char **reason) noexcept {
    const char *const problem = wrong_adamw_settings(read_adamw_settings(settings));
    if (problem != nullptr) {
        *reason = problem;
        return VESCOMM_ERROR_INVALID_ARGUMENT;
    }
    constexpr std::uint32_t size = sizeof(vescomm_optimizer_state_t);
    static constexpr vescomm_optimizer_state_t moments[] = {
        {size, VESCOMM_U8, "first moment", 0, 0},
        {size, VESCOMM_U8, "second moment", 0, 0},
        {size, VESCOMM_F32, "first scale", 1, 0},
        {size, VESCOMM_F32, "second scale", 1, 0}};
    needs->state_count = 4;
    needs->states = moments;
    needs->block_elements = block;
    return VESCOMM_OK;
}

int step(void *, const void *settings, const vescomm_optimizer_run_t *run) noexcept {
    const AdamWStep values = adamw_step(read_adamw_settings(settings), *run);
    for (std::size_t i = 0; i < run->piece_count; ++i) {
        const vescomm_optimizer_piece_t &piece = *vescomm_optimizer_piece_at(run->pieces, i);
        const std::int64_t matrix = piece.rows * piece.columns;
        std::int64_t at = piece.block;
        // The grid of blocks restarts at each matrix.
        for (std::int64_t done = 0; done < piece.elements;) {
            const std::int64_t length =
                std::min(matrix - (piece.first + done) % matrix, piece.elements - done);
            const std::int64_t begin = piece.offset + done;
            const Adam8bitState state = {static_cast<std::uint8_t *>(run->state[0]) + begin,
                                         static_cast<std::uint8_t *>(run->state[1]) + begin,
                                         static_cast<float *>(run->state[2]) + at,
                                         static_cast<float *>(run->state[3]) + at};
            adam8bit(run->master + begin, run->gradient + begin, state,
                     static_cast<std::size_t>(length), values);
            at += (length + block - 1) / block;
            done += length;
        }
    }
    return VESCOMM_OK;
}

}  // namespace

}  // namespace vescomm::fsdp

const vescomm_optimizer_kind_t *vescomm_optimizer_get_adam8bit(void) {
    static const vescomm_adamw_settings_t defaults = vescomm_adamw_settings_init();
    static const vescomm_optimizer_kind_t kind =
        vescomm::fsdp::make_kind("adam8bit", defaults, vescomm::fsdp::needs, vescomm::fsdp::step);
    return &kind;
}
