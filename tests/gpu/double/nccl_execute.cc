// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of collectives. Contributions are combined in the order of ranks; floating point
// in f64, rounded once, so that the results of tests with small integers are exact. As in NCCL, a
// minimum and a maximum ignore NaN, and an average of floats multiplies each contribution by the
// reciprocal of the number of ranks first; factor and products have the type of the elements.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "gpu/double/nccl_group.h"

namespace gpu_double {
namespace {

const char *name_of(Kind kind) {
    static const char *const names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce",
                                        "ncclBroadcast", "ncclReduce",        "ncclSend",
                                        "ncclRecv"};
    return names[static_cast<int>(kind)];
}

// 16-bit floating point, by the parameters of the format.
double from_half(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    double value = 0;
    if (exponent == (1 << exponent_bits) - 1) value = mantissa != 0 ? NAN : INFINITY;
    else if (exponent == 0) value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
    else value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return bits >> 15 != 0 ? -value : value;
}

std::uint16_t to_half(double value, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
    const int sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1);
    const double size = std::fabs(value);
    if (size == 0) return static_cast<std::uint16_t>(sign);
    const int exponent = std::max(std::isinf(size) ? bias + 1 : std::ilogb(size), 1 - bias);
    if (exponent > bias) return static_cast<std::uint16_t>(sign | infinity);
    // nearbyint() rounds to even. A carry runs into the exponent, as it must.
    const auto mantissa =
        static_cast<int>(std::nearbyint(std::ldexp(size, mantissa_bits - exponent)));
    const int bits = mantissa + ((exponent + bias - 1) << mantissa_bits);
    return static_cast<std::uint16_t>(sign | std::min(bits, infinity));
}

template <typename T>
T combine(T a, T b, nccl::Op op) {
    if (op == nccl::max || op == nccl::min) {
        if (std::isnan(static_cast<double>(a))) return b;
        if (std::isnan(static_cast<double>(b))) return a;
    }
    // Whole numbers wrap around.
    using Unsigned = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                                 std::type_identity<T>>::type;
    switch (op) {
        case nccl::prod:
            return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
        case nccl::max:
            return std::max(a, b);
        case nccl::min:
            return std::min(a, b);
        default:
            return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    }
}

// `Wide`: the type in which contributions are combined. `round`: to the type of the elements.
template <typename Wide, typename Read, typename Round, typename Write>
void reduce_as(const std::vector<const char *> &sources, std::size_t count, nccl::Op op, Read read,
               Round round, Write write) {
    const bool scales = op == nccl::average && std::is_floating_point_v<Wide>;
    const Wide factor =
        scales ? round(static_cast<Wide>(1.0 / static_cast<double>(sources.size()))) : Wide{1};
    const auto contribution = [&](std::size_t k, std::size_t i) {
        const Wide value = read(sources[k], i);
        return scales ? round(value * factor) : value;
    };
    for (std::size_t i = 0; i < count; ++i) {
        Wide value = contribution(0, i);
        for (std::size_t k = 1; k < sources.size(); ++k)
            value = combine<Wide>(value, contribution(k, i), op);
        if (op == nccl::average && !scales)
            value = static_cast<Wide>(value / static_cast<Wide>(sources.size()));
        write(i, value);
    }
}

template <typename T, typename Wide>
void reduce_plain(const std::vector<const char *> &sources, char *output, std::size_t count,
                  nccl::Op op) {
    reduce_as<Wide>(
        sources, count, op,
        [](const char *from, std::size_t i) {
            T value;
            std::memcpy(&value, from + i * sizeof value, sizeof value);
            return static_cast<Wide>(value);
        },
        [](Wide wide) { return static_cast<Wide>(static_cast<T>(wide)); },
        [output](std::size_t i, Wide wide) {
            const T value = static_cast<T>(wide);
            std::memcpy(output + i * sizeof value, &value, sizeof value);
        });
}

void reduce_halves(const std::vector<const char *> &sources, char *output, std::size_t count,
                   nccl::Op op, int exponent_bits) {
    const int mantissa_bits = 15 - exponent_bits;
    reduce_as<double>(
        sources, count, op,
        [=](const char *from, std::size_t i) {
            std::uint16_t bits;
            std::memcpy(&bits, from + 2 * i, 2);
            return from_half(bits, exponent_bits, mantissa_bits);
        },
        [=](double value) {
            return from_half(to_half(value, exponent_bits, mantissa_bits), exponent_bits,
                             mantissa_bits);
        },
        [=](std::size_t i, double value) {
            const std::uint16_t bits = to_half(value, exponent_bits, mantissa_bits);
            std::memcpy(output + 2 * i, &bits, 2);
        });
}

void reduce(const std::vector<const char *> &sources, char *output, std::size_t count,
            nccl::Type type, nccl::Op op) {
    switch (type) {
        case nccl::i8:
            return reduce_plain<std::int8_t, std::int64_t>(sources, output, count, op);
        case nccl::u8:
            return reduce_plain<std::uint8_t, std::uint64_t>(sources, output, count, op);
        case nccl::i32:
            return reduce_plain<std::int32_t, std::int64_t>(sources, output, count, op);
        case nccl::u32:
            return reduce_plain<std::uint32_t, std::uint64_t>(sources, output, count, op);
        case nccl::i64:
            return reduce_plain<std::int64_t, std::int64_t>(sources, output, count, op);
        case nccl::u64:
            return reduce_plain<std::uint64_t, std::uint64_t>(sources, output, count, op);
        case nccl::f32:
            return reduce_plain<float, double>(sources, output, count, op);
        case nccl::f64:
            return reduce_plain<double, double>(sources, output, count, op);
        case nccl::f16:
            return reduce_halves(sources, output, count, op, 5);
        case nccl::bf16:
            return reduce_halves(sources, output, count, op, 8);
        default:
            violation("the double does not reduce type " + std::to_string(type));
    }
}

// The results overwrite sources in place, so they are computed beside them first.
void reduce_to(const std::vector<const char *> &sources, const std::vector<char *> &outputs,
               std::size_t count, nccl::Type type, nccl::Op op) {
    std::vector<char> result(count * bytes_of(type));
    reduce(sources, result.data(), count, type, op);
    for (char *output : outputs) std::memcpy(output, result.data(), result.size());
}

std::string difference(const Call &first, const Call &other) {
    if (describe(first) != describe(other)) return describe(first) + " and " + describe(other);
    if (first.registered != other.registered)
        return describe(first) + " on " + (first.registered ? "registered" : "unregistered") +
               " memory and on " + (other.registered ? "registered" : "unregistered") + " memory";
    const bool symmetric = first.kind == Kind::all_gather || first.kind == Kind::reduce_scatter ||
                           first.kind == Kind::all_reduce;
    if (symmetric && first.window_offset != other.window_offset)
        return describe(first) + " at offset " + std::to_string(first.window_offset) +
               " of a window and at offset " + std::to_string(other.window_offset);
    return {};
}

}  // namespace

std::size_t bytes_of(nccl::Type type) {
    static constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < 12 ? sizes[type] : 0;
}

std::string describe(const Call &call) {
    std::string text = std::string(name_of(call.kind)) + "(" + std::to_string(call.count) +
                       " of type " + std::to_string(call.type);
    const bool reduces = call.kind == Kind::reduce_scatter || call.kind == Kind::all_reduce ||
                         call.kind == Kind::reduce;
    if (reduces) text += ", operator " + std::to_string(call.op);
    if (call.kind == Kind::broadcast || call.kind == Kind::reduce)
        text += ", root " + std::to_string(call.peer);
    return text + ")";
}

std::string execute(const Meeting &meeting) {
    const std::size_t ranks = meeting.calls.size();
    const Call &first = *meeting.calls[0];
    for (std::size_t rank = 1; rank < ranks; ++rank)
        if (const std::string what = difference(first, *meeting.calls[rank]); !what.empty())
            return "ranks 0 and " + std::to_string(rank) + " make different calls: " + what;
    const std::size_t bytes = first.count * bytes_of(first.type);
    const auto source = [&](std::size_t rank) {
        return static_cast<const char *>(host_view(meeting.calls[rank]->source));
    };
    const auto output = [&](std::size_t rank) {
        return static_cast<char *>(host_view(meeting.calls[rank]->output));
    };
    std::vector<const char *> sources;
    std::vector<char *> outputs;
    for (std::size_t rank = 0; rank < ranks; ++rank) sources.push_back(source(rank));
    for (std::size_t rank = 0; rank < ranks; ++rank) outputs.push_back(output(rank));
    switch (first.kind) {
        case Kind::all_gather:
            for (char *to : outputs)
                for (std::size_t rank = 0; rank < ranks; ++rank)
                    std::memmove(to + rank * bytes, sources[rank], bytes);
            break;
        case Kind::reduce_scatter: {
            // In place, the output of a rank is a part of its source, which others do not read.
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                std::vector<const char *> blocks;
                for (const char *from : sources) blocks.push_back(from + rank * bytes);
                reduce_to(blocks, {outputs[rank]}, first.count, first.type, first.op);
            }
            break;
        }
        case Kind::all_reduce:
            reduce_to(sources, outputs, first.count, first.type, first.op);
            break;
        case Kind::reduce:
            reduce_to(sources, {outputs[static_cast<std::size_t>(first.peer)]}, first.count,
                      first.type, first.op);
            break;
        case Kind::broadcast:
            for (char *to : outputs)
                std::memmove(to, sources[static_cast<std::size_t>(first.peer)], bytes);
            break;
        case Kind::send:
        case Kind::receive:
            break;  // messages have no meeting
    }
    return {};
}

}  // namespace gpu_double
