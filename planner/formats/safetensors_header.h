// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The header of a safetensors file:
//
//     8 bytes   length of the header, little-endian
//     header    {"name": {"dtype": "BF16", "shape": [4096, 4096], "data_offsets": [0, 33554432]},
//                ..., "__metadata__": {"format": "pt"}}
//     data      every byte belongs to one tensor
//
// Source: https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm::formats {

// Bytes of the length that precedes the header.
constexpr std::int64_t safetensors_length_bytes = 8;
// The limit of the safetensors library for the length of a header, in bytes.
constexpr std::uint64_t longest_safetensors_header = 100'000'000;

// A tensor in a file. Its bytes are [begin, end) of the data that follows the header.
struct StoredTensor {
    std::string name;
    std::vector<std::int64_t> shape;  // row-major; types smaller than a byte are counted in bytes
    vescomm_type_t type = VESCOMM_F32;
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

// Returns the length of the header from the first 8 bytes of a file of `file_bytes` bytes. Throws
// InputError, which begins with `where`, if the file cannot hold such a header.
std::int64_t safetensors_header_bytes(std::string_view first_bytes, std::int64_t file_bytes,
                                      const std::string &where);

// Parses a header, without the 8 bytes of its length; data_bytes follow it in the file. The result
// is in order of data. Throws InputError, which begins with `where`, for everything that the
// safetensors library refuses.
std::vector<StoredTensor> parse_safetensors_header(std::string_view header, std::int64_t data_bytes,
                                                   const std::string &where);

// Returns the first bytes of a file that holds `tensors`: length and header, padded to a multiple
// of 8 bytes. The tensors cover their data in order, without gaps. Throws InputError, which begins
// with `where`, if a name is no UTF-8, is there twice, or if safetensors lacks a type.
std::string make_safetensors_header(const std::vector<StoredTensor> &tensors,
                                    const std::string &where);

}  // namespace vescomm::formats
