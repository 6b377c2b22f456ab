// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Headers and indices of safetensors (planner/input/safetensors.h).
//
//     byte 0    0: an index; otherwise a header of a file whose number of data bytes follows in
//               four bytes
//
// Invariants: accepted tensors together are as large as the file; a file that an index names is in
// the same folder; natural order is a total order.
#include "planner/input/safetensors.h"

#include "fuzz/fuzz.h"
#include "planner/input/rules.h"

namespace {

using namespace vescomm::internal;
using namespace vescomm::planner;
using fuzz::require;

void index(std::string_view text) {
    const std::vector<std::string> files = parse_safetensors_index(text, "here");
    for (std::size_t i = 0; i < files.size(); ++i) {
        require(!files[i].empty() && files[i].find('/') == std::string::npos && files[i] != ".." &&
                    files[i] != ".",
                "a file lies beside its index");
        require(i == 0 || files[i - 1] < files[i], "every file is named once");
    }
}

void header(std::string_view text, std::int64_t data_bytes) {
    const std::vector<InputTensor> tensors = parse_safetensors_header(text, data_bytes, "here");
    std::int64_t bytes = 0;
    for (const InputTensor &tensor : tensors) {
        const auto elements = count_elements(tensor.shape);
        require(elements && *elements <= max_elements, "a tensor has a size");
        require(tensor.shape.size() <= max_dimensions && tensor.name.size() <= longest_name,
                "a tensor is within its limits");
        bytes += *elements * bytes_of(tensor.type);
    }
    require(bytes == data_bytes, "tensors fill the file");
    for (std::size_t i = 1; i < tensors.size(); ++i) {
        const std::string &a = tensors[i - 1].name, &b = tensors[i].name;
        require(!natural_less(a, a), "no name is before itself");
        require(a == b || natural_less(a, b) != natural_less(b, a), "one of two names is first");
    }
    (void)make_model(tensors, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    try {
        if (input.byte() == 0) {
            index(input.rest());
        } else {
            const auto data_bytes = static_cast<std::int64_t>(input.number<std::uint32_t>());
            header(input.rest(), data_bytes);
        }
    } catch (const InputError &error) {
        fuzz::require_sentence(error.what());
        require(std::string_view(error.what()).starts_with("here"), "a sentence says where");
    }
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    const auto header = [](std::uint8_t bytes, const std::string &text) {
        return std::string({'\1', static_cast<char>(bytes), '\0', '\0', '\0'}) + text;
    };
    const std::string zero(1, '\0');
    return {
        {"two", header(80, R"({"__metadata__":{"format":"pt"},"l.0.w":{"dtype":"BF16","shape":)"
                           R"([4,8],"data_offsets":[0,64]},"l.0.b":{"dtype":"F32","shape":[4],)"
                           R"("data_offsets":[64,80]}})")},
        {"experts", header(24, R"({"layers.1.mlp.experts.up":{"dtype":"F8_E4M3","shape":[2,3,4],)"
                               R"("data_offsets":[0,24]}})")},
        {"packed", header(6, R"({"w":{"dtype":"F4","shape":[3,4],"data_offsets":[0,6]}})")},
        {"packed-no-byte", header(6, R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,6]}})")},
        {"scalar", header(8, R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})")},
        {"empty", header(0, R"({"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")},
        {"overlap", header(8, R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                              R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})")},
        {"hole", header(8, R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})")},
        {"rest", header(8, R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})")},
        {"too-large", header(8, R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                                R"("data_offsets":[0,4]}})")},
        {"no-dtype", header(4, R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})")},
        {"other-key", header(4, R"({"a":{"type":"F32"}})")},
        {"key-twice", header(0, R"({"a":1,"a":1})")},
        {"too-deep", header(0, R"({"a":[[[[]]]]})")},
        {"huge-number", header(0, R"({"a":{"dtype":"F32","shape":[1e999]}})")},
        {"no-object", header(0, "[]")},
        {"no-json", header(0, "{")},
        {"index", zero + R"({"metadata":{"total_size":1},"weight_map":{"a":"m-1.safetensors",)"
                         R"("b":"m-2.safetensors","c":"m-1.safetensors"}})"},
        {"index-elsewhere", zero + R"({"weight_map":{"a":"../m.safetensors"}})"},
        {"index-parent", zero + R"({"weight_map":{"a":".."}})"},
        {"index-empty", zero + R"({"weight_map":{}})"},
        {"index-none", zero + "{}"},
    };
}
