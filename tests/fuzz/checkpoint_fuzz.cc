// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Files of checkpoints (fsdp/checkpoint).
//
//     byte 0    0: an index; 1: a manifest; 2: the file `latest`; 3: the indexes of a save, a line
//               for each rank; otherwise a safetensors file, from which two entries are read: the
//               length of a name and the name, type, count, begin and end; then the header
//
// Invariants: accepted values are the same after they are written and read again; every element of
// an accepted save is in one piece; reads stay within their output, which sanitizers check.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "fsdp/checkpoint/catalogue.h"
#include "fsdp/checkpoint/data_file.h"
#include "fsdp/checkpoint/error.h"
#include "fsdp/checkpoint/index.h"
#include "fsdp/checkpoint/manifest.h"
#include "fuzz/fuzz.h"
#include "planner/formats/element_types.h"
#include "planner/formats/input_error.h"

namespace {

using namespace vescomm::fsdp::checkpoint;
namespace formats = vescomm::formats;
namespace fuzz = vescomm::internal::fuzz;
using fuzz::require;

// One file in memory.
class MemoryCalls final : public SystemCalls {
public:
    explicit MemoryCalls(std::string bytes) : bytes_(std::move(bytes)) {}

    int open(const char *, int, mode_t) override { return 3; }
    int close(int) override { return 0; }
    std::int64_t size(int) override { return static_cast<std::int64_t>(bytes_.size()); }
    ssize_t pread(int, void *bytes, std::size_t count, std::int64_t offset) override {
        require(offset >= 0 && static_cast<std::size_t>(offset) <= bytes_.size(),
                "a read begins in the file");
        const std::size_t read = std::min(count, bytes_.size() - static_cast<std::size_t>(offset));
        std::memcpy(bytes, bytes_.data() + offset, read);
        return static_cast<ssize_t>(read);
    }

private:
    std::string bytes_;
};

void index(std::string_view text) {
    const Index parsed = parse_index(text, "here");
    require(parse_index(to_json(parsed, "here"), "here") == parsed, "an index is kept");
}

void manifest(std::string_view text) {
    const Manifest parsed = parse_manifest(text, "here");
    require(parse_manifest(to_json(parsed), "here") == parsed, "a manifest is kept");
}

void latest(std::string_view text) {
    const std::string save = parse_latest(text, "here");
    require(save.find('/') == std::string::npos && save_name(*save_number(save)) == save,
            "a save lies in its folder");
}

void catalogue(fuzz::Input &input) {
    std::vector<Index> indexes;
    while (!input.empty() && indexes.size() < 4)
        indexes.push_back(parse_index(input.until('\n'), "here"));
    const Catalogue catalogue(std::move(indexes), "here");
    for (const auto &[key, stored] : catalogue.tensors()) {
        const std::int64_t elements = *formats::count_elements(stored.tensor.shape);
        std::int64_t at = elements / 3;
        for (const Part &part : parts_of(stored, at, elements - at)) {
            require(part.first == at && part.count > 0 && part.first >= part.piece->first &&
                        part.first + part.count <= part.piece->first + part.piece->count,
                    "parts follow one another, within their pieces");
            at += part.count;
        }
        require(at == elements, "parts cover what is wanted");
    }
}

// Returns the bytes of an entry of a file whose header was accepted, or nothing.
std::string_view bytes_of_entry(std::string_view file, const std::string &entry) {
    const auto size = static_cast<std::int64_t>(file.size());
    const std::int64_t header = formats::safetensors_header_bytes(file, size, "here");
    const auto begin = static_cast<std::size_t>(formats::safetensors_length_bytes + header);
    for (const auto &stored :
         formats::parse_safetensors_header(file.substr(8, static_cast<std::size_t>(header)),
                                           static_cast<std::int64_t>(file.size() - begin), "here"))
        if (stored.name == entry)
            return file.substr(begin + static_cast<std::size_t>(stored.begin),
                               static_cast<std::size_t>(stored.end - stored.begin));
    return {};
}

void data_file(fuzz::Input &input) {
    struct Read {
        std::string entry;
        vescomm_type_t type;
        std::int64_t count;
        std::int64_t begin;
        std::int64_t bytes;
    };
    std::vector<Read> reads;
    const std::int64_t checksum_bytes = 1 + static_cast<std::int64_t>(input.below(40));
    for (int i = 0; i < 2; ++i) {
        Read read;
        read.entry = input.text();
        read.type = VESCOMM_F32 + static_cast<vescomm_type_t>(input.below(16));
        read.count = input.byte();
        const std::int64_t all = read.count * formats::bytes_of(read.type);
        read.begin = input.byte() % (all + 1);
        read.bytes = input.byte() % (all - read.begin + 1);
        reads.push_back(read);
    }
    const std::string file(input.rest());
    MemoryCalls calls(file);
    const DataFile opened(calls, "here", static_cast<std::int64_t>(file.size()), checksum_bytes);
    for (const Read &read : reads) {
        const std::int64_t all = read.count * formats::bytes_of(read.type);
        const std::string_view bytes = bytes_of_entry(file, read.entry).substr(0, all);
        Checksums checksums;
        for (std::int64_t at = 0; at < all; at += checksum_bytes)
            checksums.push_back(checksum_of(
                bytes.substr(std::min(bytes.size(), static_cast<std::size_t>(at)),
                             static_cast<std::size_t>(std::min(checksum_bytes, all - at)))));
        std::string output(static_cast<std::size_t>(read.bytes), '\0');
        opened.read(read.entry, read.type, read.count, checksums, read.begin,
                    std::as_writable_bytes(std::span(output)));
        require(output == bytes.substr(static_cast<std::size_t>(read.begin), output.size()),
                "a read returns the bytes of its entry");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    try {
        switch (input.byte()) {
            case 0:
                index(input.rest());
                break;
            case 1:
                manifest(input.rest());
                break;
            case 2:
                latest(input.rest());
                break;
            case 3:
                catalogue(input);
                break;
            default:
                data_file(input);
                break;
        }
    } catch (const formats::InputError &) {
    } catch (const Error &) {
    }
    return 0;
}

std::vector<fuzz::Seed> fuzz::seeds() {
    const auto selected = [](char what, const std::string &text) { return what + text; };
    const auto rank = [](int rank, int ranks) {
        Index index;
        index.rank = rank;
        index.ranks = ranks;
        index.checksum_bytes = 16;
        const std::int64_t half = rank == 0 ? 0 : 3;
        index.tensors = {{{"w", "master", {2, 3}, VESCOMM_F32}, {{half, 3, {1}}}},
                         {{"empty", "m", {0}, VESCOMM_BF16}, {{0, 0, {}}}}};
        index.extras = {{"random." + std::to_string(rank), 20, {7, 8}}};
        return to_json(index, "seed");
    };
    std::string file = formats::make_safetensors_header(
        {{"master/w[0:3]", {3}, VESCOMM_F32, 0, 12}, {"extra:e", {2}, VESCOMM_U8, 12, 14}}, "seed");
    file += std::string(14, '\1');
    // A chunk of 16 bytes; the entry of f32 from byte 4 on, 8 bytes; then the extra.
    const std::string script = std::string("\17") + "\15master/w[0:3]" +
                               std::string("\0\3\4\10", 4) + "\7extra:e" +
                               std::string("\7\2\0\2", 4);
    return {
        {"index", selected(0, rank(0, 2))},
        {"index-only-form", selected(0, R"({"format":"vescomm-checkpoint","version":1})")},
        {"index-newer", selected(0, R"({"format":"vescomm-checkpoint","version":2})")},
        {"manifest", selected(1, to_json(Manifest{{100, 50, 7}, {0, 0, 0}}))},
        {"manifest-empty", selected(1, to_json(Manifest{}))},
        {"latest", selected(2, latest_to_json(save_name(12)))},
        {"latest-elsewhere", selected(2, latest_to_json("../save-0000000012"))},
        {"save-of-two", selected(3, rank(0, 2) + rank(1, 2))},
        {"save-of-one", selected(3, rank(0, 1))},
        {"file", selected(4, script + file)},
        {"file-cut", selected(4, script + file.substr(0, file.size() - 3))},
    };
}
