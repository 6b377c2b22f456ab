// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu_array.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "array.h"
#include "convert.h"
#include "docs_gpu.h"
#include "errors.h"
#include "integer.h"
#include "types.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

constexpr int cuda = nb::device::cuda::value;

[[noreturn]] void refuse_array(nb::handle array, const char *name, const std::string &why) {
    refuse(std::string(name) + ", a " + type_name_of(array) + ", " + why);
}

// True if the array says so. Packages of such arrays refuse a stream with errors of their own.
bool in_host_memory(nb::handle array) {
    if (!nb::hasattr(array, "__dlpack_device__")) return false;
    const nb::object device = array.attr("__dlpack_device__")();
    if (!nb::isinstance<nb::tuple>(device) || nb::len(device) != 2) return false;
    const nb::object type = device[0];
    return nb::isinstance<nb::int_>(type) && nb::cast<int>(type) == nb::device::cpu::value;
}

// The array by DLPack. The stream -1 asks the other package not to order its streams: the program
// does that.
nb::ndarray<nb::ro> import(nb::handle array, const char *name) {
    if (!nb::hasattr(array, "__dlpack__"))
        refuse_array(array, name, "does not export DLPack; pass an array in device memory");
    if (in_host_memory(array))
        refuse_array(array, name, "is in host memory; pass an array in device memory");
    nb::object capsule;
    try {
        capsule = array.attr("__dlpack__")(nb::arg("stream") = -1);
    } catch (const nb::python_error &error) {
        if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_BufferError)) throw;
        refuse_array(array, name, std::string("cannot be shared by DLPack: ") + error.what());
    }
    nb::ndarray<nb::ro> imported;
    if (!PyCapsule_CheckExact(capsule.ptr()) || !nb::try_cast(capsule, imported, false))
        refuse_array(array, name,
                     "has a __dlpack__() that returned no new capsule, but a value of type " +
                         type_name_of(capsule));
    return imported;
}

// An object of nanobind for the same memory, which exports it by DLPack. It keeps `self` alive.
nb::object exporter(nb::handle self) {
    const auto &array = nb::cast<const DeviceArray &>(self);
    require_exportable(array.shape().size());
    const std::vector<std::size_t> shape(array.shape().begin(), array.shape().end());
    return nb::cast(nb::ndarray<nb::array_api>(array.data(), shape.size(), shape.data(), self,
                                               nullptr, dlpack_of(array.type()), cuda,
                                               array.device()));
}

// Orders the stream of the package that imports the array, a number of DLPack: -1 is none, None and
// 1 are the legacy default stream. A stream that is captured into a graph can follow no work
// outside it: the program has ordered it before.
void order_stream(const DeviceArray &array, nb::handle stream) {
    constexpr std::int64_t no_stream = -1, legacy_default = 1;
    std::int64_t number = legacy_default;
    if (!stream.is_none() && (!read_integer(stream.ptr(), number) || number < no_stream))
        throw nb::type_error("stream must be None or an integer of -1 or more");
    if (number == no_stream) return;
    const vescomm_status_t status = array.owner().order_stream(
        number == legacy_default ? nullptr : reinterpret_cast<void *>(number));
    if (status != VESCOMM_ERROR_INVALID_ARGUMENT) check(status);
}

nb::object export_ordered(nb::handle self, nb::args args, nb::kwargs kwargs) {
    nb::object stream = nb::none();
    if (nb::len(args) > 0) stream = args[0];
    else if (kwargs.contains("stream")) stream = kwargs["stream"];
    order_stream(nb::cast<const DeviceArray &>(self), stream);
    return exporter(self).attr("__dlpack__")(*args, **kwargs);
}

std::string describe(const DeviceArray &array) {
    std::string text = "vescomm.gpu.Array(shape=(";
    for (const std::int64_t extent : array.shape()) text += std::to_string(extent) + ",";
    return text + "), type=" + name_of(array.type()) +
           ", device=" + std::to_string(array.device()) + ")";
}

}  // namespace

DeviceArgument read_device_array(nb::handle array, const char *name, int device,
                                 const char *owner) {
    if (nb::isinstance<DeviceArray>(array)) {
        const auto &own = nb::cast<const DeviceArray &>(array);
        if (device != any_device && own.device() != device)
            refuse_array(array, name,
                         "is on device " + std::to_string(own.device()) + ", and " + owner +
                             " on device " + std::to_string(device));
        return {own.data(), own.elements(), own.type(), own.device()};
    }
    const nb::ndarray<nb::ro> imported = import(array, name);
    if (imported.device_type() != cuda)
        refuse_array(array, name, "is not in the memory of a device of CUDA");
    if (device != any_device && imported.device_id() != device)
        refuse_array(array, name,
                     "is not in the memory of device " + std::to_string(device) + ", on which " +
                         owner + " is");
    std::int64_t expected = 1;
    for (std::size_t i = imported.ndim(); i-- > 0;) {
        const auto extent = static_cast<std::int64_t>(imported.shape(i));
        if (extent != 1 && imported.size() != 0 && imported.stride(i) != expected)
            refuse_array(array, name, "is not contiguous; pass a contiguous array");
        expected *= extent;
    }
    const vescomm_type_t type = type_of(imported.dtype());
    if (type == VESCOMM_TYPE_DEFAULT)
        refuse_array(array, name, "has elements of a type that vescomm has not");
    return {const_cast<void *>(static_cast<const void *>(imported.data())),
            static_cast<std::int64_t>(imported.size()), type, imported.device_id()};
}

void define_gpu_array(nb::module_ &module) {
    nb::class_<DeviceArray>(module, "GpuArray", docs::gpu_array, nb::is_weak_referenceable())
        .def_prop_ro(
            "address",
            [](const DeviceArray &array) { return reinterpret_cast<std::uintptr_t>(array.data()); },
            docs::gpu_array_address)
        .def_prop_ro(
            "shape", [](const DeviceArray &array) { return nb::tuple(nb::cast(array.shape())); },
            docs::gpu_array_shape)
        .def_prop_ro(
            "type", [](const DeviceArray &array) { return to_python(array.type()); },
            docs::gpu_array_type)
        .def_prop_ro("size", &DeviceArray::elements, docs::gpu_array_size)
        .def_prop_ro("device", &DeviceArray::device, docs::gpu_array_device)
        .def(
            "torch",
            [](nb::handle self) { return nb::module_::import_("torch").attr("from_dlpack")(self); },
            docs::gpu_array_torch)
        .def("__repr__", describe)
        .def("__dlpack__", export_ordered)
        .def("__dlpack_device__",
             [](const DeviceArray &array) { return nb::make_tuple(cuda, array.device()); });
}

}  // namespace vescomm::python
