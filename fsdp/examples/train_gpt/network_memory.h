// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The memory of a network for one element type, beside its parameters and gradients.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "fsdp/examples/train_gpt/arena.h"
#include "fsdp/examples/train_gpt/gpt.h"

namespace train_gpt {

// Activations that a block keeps for its backward pass, [tokens][…].
template <typename Element>
struct BlockMemory {
    float *x;  // [dim], its input
    float *middle;  // [dim], x after attention
    Element *qkv;  // [3 dim]
    Element *attended;  // [dim]
    float *log_sum;  // [heads], see Attention
    Element *up;  // [4 dim], before GELU
};

// Activations that the head keeps, [tokens][…].
struct HeadMemory {
    float *x;  // [dim], its input
    float *logits;  // [vocabulary]
    float *log_sum;  // of the logits
};

// Temporaries of one unit.
template <typename Element>
struct UnitMemory {
    Element *normal;  // [tokens][dim]
    Element *narrow;  // [tokens][dim]
    Element *wide;  // [tokens][4 dim]
    Element *dwide;  // [tokens][4 dim], also dlogits and dqkv
    float *mean;  // [tokens]
    float *reciprocal;  // [tokens]
    float *sums;  // gradients that are summed in f32
};

template <typename Element>
struct NetworkMemory {
    // `recompute`: the blocks share all activations but their inputs.
    NetworkMemory(Arena &arena, const Shape &shape, std::size_t tokens, bool recompute);

    std::uint8_t *inputs;  // [tokens]
    std::uint8_t *targets;  // [tokens]
    std::vector<BlockMemory<Element>> blocks;
    HeadMemory head;
    // The gradient of the residual stream, and its rounded copy for the products. In f32 both are
    // the same array.
    float *dx;  // [tokens][dim]
    Element *dx_rounded;
    UnitMemory<Element> unit;
};

template <typename Element>
NetworkMemory<Element>::NetworkMemory(Arena &arena, const Shape &shape, std::size_t tokens,
                                      bool recompute) {
    const std::size_t dim = shape.dim;
    inputs = arena.take<std::uint8_t>(tokens);
    targets = arena.take<std::uint8_t>(tokens);

    for (int layer = 0; layer < shape.layers; ++layer) {
        if (recompute && layer > 0) {
            blocks.push_back(blocks.front());
            blocks.back().x = arena.take<float>(tokens * dim);
            continue;
        }
        blocks.push_back({
            .x = arena.take<float>(tokens * dim),
            .middle = arena.take<float>(tokens * dim),
            .qkv = arena.take<Element>(tokens * 3 * dim),
            .attended = arena.take<Element>(tokens * dim),
            .log_sum = arena.take<float>(tokens * shape.heads),
            .up = arena.take<Element>(tokens * 4 * dim),
        });
    }
    head.x = arena.take<float>(tokens * dim);
    head.logits = arena.take<float>(tokens * Shape::vocabulary);
    head.log_sum = arena.take<float>(tokens);

    dx = arena.take<float>(tokens * dim);
    if constexpr (std::is_same_v<Element, float>) {
        dx_rounded = dx;
    } else {
        dx_rounded = arena.take<Element>(tokens * dim);
    }

    unit.normal = arena.take<Element>(tokens * dim);
    unit.narrow = arena.take<Element>(tokens * dim);
    unit.wide = arena.take<Element>(tokens * 4 * dim);
    unit.dwide = arena.take<Element>(tokens * std::max<std::size_t>(4 * dim, Shape::vocabulary));
    unit.mean = arena.take<float>(tokens);
    unit.reciprocal = arena.take<float>(tokens);
    unit.sums =
        arena.take<float>(std::max<std::size_t>(4, Shape::vocabulary + shape.context) * dim);
}

}  // namespace train_gpt
