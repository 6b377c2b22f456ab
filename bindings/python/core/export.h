// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory of arrays of other packages: DLPack, the buffer protocol, and __array_interface__.
//
// nanobind imports arrays by the first two itself, but drops their exceptions, also
// KeyboardInterrupt, and takes a capsule that __dlpack__() returns twice for a new one, which frees
// its memory twice. It marks a capsule that is given to it, and refuses it the second time.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vescomm::python {

// The reasons why an object exports nothing that nanobind imports.
struct NoExport {
    std::optional<nanobind::python_error> raised;
    nanobind::object returned;  // that nanobind does not import
    std::optional<nanobind::python_error> buffer_raised;  // by the buffer protocol
    nanobind::object buffer;  // a memoryview that nanobind does not import
};

// True for types that export DLPack, and for that of capsules.
bool exports_dlpack(nanobind::handle type);

// Objects that nanobind imports, or null. Exceptions of the array are dropped or kept in `why`;
// those that must pass are thrown (see must_pass()).
//
// The capsule of `array`, or `array` if it is one: exports_dlpack() is true for its type.
// `writable`: its memory will be written.
nanobind::object export_dlpack(nanobind::handle array, bool writable, NoExport &why);
// Describes a value of __dlpack__() that nanobind does not import. Empty: a good capsule, whose
// array is read-only.
std::string why_unusable(nanobind::handle exported);
// A memoryview: it has the strides of a buffer, which ctypes leaves null.
nanobind::object export_buffer(nanobind::handle array, NoExport &why);
// The capsule of the function to_dlpack() of torch and TensorFlow, which exports tensors that
// require gradients.
nanobind::object export_dlpack_of_framework(nanobind::handle array);

// The text of an exception, without its type.
std::string text_of(const nanobind::python_error &error);

// The values of __array_interface__.
struct ArrayInterface {
    void *data = nullptr;
    bool read_only = false;
    std::vector<std::int64_t> shape;
    std::optional<std::vector<std::int64_t>> strides;  // as many as extents
    std::int64_t elements = 1;
    char kind = 0;  // as in dtype.kind of NumPy
    bool native = true;  // the order of bytes is that of this machine
    std::size_t element_bytes = 0;
};

// Reads them. Returns nothing if `array` has no __array_interface__. Raises an exception if it has
// a wrong one; `subject` begins the sentence.
std::optional<ArrayInterface> interface_of(nanobind::handle array, const std::string &subject);

// True for the types of NumPy's scalars. Their __array_interface__ has the address of a temporary
// array.
bool is_scalar_of_numpy(nanobind::handle type);

}  // namespace vescomm::python
