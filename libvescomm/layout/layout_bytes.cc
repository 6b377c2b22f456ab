// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The canonical bytes of a layout. Integers are 64 bits, little-endian. The format has no padding,
// no optional fields and no redundancy, so equal layouts have equal bytes.
//
//     "vescomm layout 1"                       16 bytes; the digit is the version of this format
//     ranks, tensors                           number of ranks, number of tensors
//     cut 0, ..., cut ranks                    the last cut is the size of the buffer
//     for each tensor:
//         length of name, name                 bytes
//         dimensions, extent 0, ...
//         offset, block, batch dimensions
//
// Ranks compare hashes of these bytes, and users keep the bytes in files. A change of the format
// changes every hash and needs a new version.
//
// Zone: set-up.
#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "layout/layout.h"

namespace vescomm::internal {
namespace {

constexpr std::string_view magic = "vescomm layout 1";
constexpr std::size_t integer_bytes = 8;
// Name length, one character, dimensions, offset, block, batch dimensions.
constexpr std::size_t min_tensor_bytes = 5 * integer_bytes + 1;

class Writer {
public:
    void integer(std::uint64_t value) {
        for (std::size_t i = 0; i < integer_bytes; ++i) {
            bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
        }
    }
    void integer(std::int64_t value) { integer(static_cast<std::uint64_t>(value)); }
    void text(std::string_view text) {
        const auto *data = reinterpret_cast<const std::byte *>(text.data());
        bytes_.insert(bytes_.end(), data, data + text.size());
    }
    void reserve(std::size_t bytes) { bytes_.reserve(bytes); }

    std::vector<std::byte> take() { return std::move(bytes_); }

private:
    std::vector<std::byte> bytes_;
};

[[noreturn]] void refuse(std::string_view why) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, fmt::format("these bytes are no layout: {}", why));
}

class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    std::int64_t integer(std::string_view what) {
        const std::span<const std::byte> read = take(integer_bytes, what);
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < integer_bytes; ++i) {
            value |= std::to_integer<std::uint64_t>(read[i]) << (8 * i);
        }
        return static_cast<std::int64_t>(value);
    }

    // Reads a number of items that take at least `bytes_each` bytes each. Refuses a number that the
    // remaining bytes cannot hold, so that memory stays proportional to the input.
    std::size_t count(std::size_t bytes_each, std::string_view what) {
        const std::int64_t value = integer(what);
        if (value < 0 || static_cast<std::uint64_t>(value) > bytes_.size() / bytes_each) {
            refuse(fmt::format("{} is {}, more than the {} bytes after it can hold", what, value,
                               bytes_.size()));
        }
        return static_cast<std::size_t>(value);
    }

    std::string_view text(std::size_t size, std::string_view what) {
        const std::span<const std::byte> read = take(size, what);
        return {reinterpret_cast<const char *>(read.data()), read.size()};
    }

    std::size_t left() const { return bytes_.size(); }

private:
    std::span<const std::byte> take(std::size_t size, std::string_view what) {
        if (size > bytes_.size()) {
            refuse(
                fmt::format("they end {} bytes before the end of {}", size - bytes_.size(), what));
        }
        const std::span<const std::byte> read = bytes_.first(size);
        bytes_ = bytes_.subspan(size);
        return read;
    }

    std::span<const std::byte> bytes_;
};

Layout::Tensor read_tensor(Reader &reader) {
    Layout::Tensor tensor;
    tensor.name = reader.text(reader.count(1, "the length of a name"), "a name");
    const std::size_t dimensions = reader.count(integer_bytes, "the number of dimensions");
    tensor.shape.reserve(dimensions);
    for (std::size_t i = 0; i < dimensions; ++i) tensor.shape.push_back(reader.integer("a shape"));
    tensor.offset = reader.integer("an offset");
    tensor.block = reader.integer("a block");
    const std::int64_t batch_dimensions = reader.integer("the number of batch dimensions");
    if (batch_dimensions < 0 || batch_dimensions > std::numeric_limits<std::int32_t>::max()) {
        refuse(fmt::format("the number of batch dimensions is {}", batch_dimensions));
    }
    tensor.batch_dimensions = static_cast<std::int32_t>(batch_dimensions);
    return tensor;
}

}  // namespace

std::vector<std::byte> Layout::serialise() const {
    std::size_t bytes = magic.size() + (2 + cuts_.size()) * integer_bytes;
    for (const Tensor &tensor : tensors_) {
        bytes += tensor.name.size() + (5 + tensor.shape.size()) * integer_bytes;
    }
    Writer writer;
    writer.reserve(bytes);
    writer.text(magic);
    writer.integer(std::uint64_t{cuts_.size() - 1});
    writer.integer(std::uint64_t{tensors_.size()});
    for (const std::int64_t cut : cuts_) writer.integer(cut);
    for (const Tensor &tensor : tensors_) {
        writer.integer(std::uint64_t{tensor.name.size()});
        writer.text(tensor.name);
        writer.integer(std::uint64_t{tensor.shape.size()});
        for (const std::int64_t extent : tensor.shape) writer.integer(extent);
        writer.integer(tensor.offset);
        writer.integer(tensor.block);
        writer.integer(std::int64_t{tensor.batch_dimensions});
    }
    return writer.take();
}

Layout Layout::parse(std::span<const std::byte> bytes) {
    Reader reader(bytes);
    if (reader.text(magic.size(), "the signature") != magic) {
        refuse(
            fmt::format("they do not start with \"{}\"; another version wrote them, or another "
                        "program",
                        magic));
    }
    const std::size_t ranks = reader.count(integer_bytes, "the number of ranks");
    const std::size_t count = reader.count(min_tensor_bytes, "the number of tensors");
    std::vector<std::int64_t> cuts(ranks + 1);
    for (std::int64_t &cut : cuts) cut = reader.integer("the cuts");
    std::vector<Tensor> tensors;
    tensors.reserve(count);
    for (std::size_t i = 0; i < count; ++i) tensors.push_back(read_tensor(reader));
    if (reader.left() != 0) {
        refuse(fmt::format("{} bytes follow the last tensor", reader.left()));
    }
    const std::int64_t elements = cuts.back();
    try {
        return Layout(std::move(tensors), elements, std::move(cuts));
    } catch (const Error &error) {
        refuse(error.what());
    }
}

}  // namespace vescomm::internal
