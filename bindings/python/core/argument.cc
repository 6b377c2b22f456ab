// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "argument.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <utility>

#include "array.h"
#include "convert.h"
#include "errors.h"
#include "export.h"
#include "known_dtype.h"
#include "types.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

struct Reader {
    nb::handle array;
    const char *name;
    const TypeArgument &explicit_type;

    std::string subject() const { return std::string(name) + ", a " + type_name_of(array) + ", "; }

    [[noreturn]] void refuse(const std::string &why) const { python::refuse(subject() + why); }

    // The type of the elements. `natural`: the type that the array names, or 0. `bytes`: the size
    // of its elements.
    vescomm_type_t type(vescomm_type_t natural, std::size_t bytes) const {
        if (!explicit_type) {
            if (natural == VESCOMM_TYPE_DEFAULT)
                refuse("has elements of " + std::to_string(bytes) +
                       " bytes of a type that vescomm has not; give the type of the elements that "
                       "are meant: type=");
            return natural;
        }
        const vescomm_type_t given = explicit_type->small("type");
        if (vescomm_type_get_bytes(given) != bytes)
            refuse("has elements of " + std::to_string(bytes) + " bytes, and type=" +
                   name_of(given) + " has " + std::to_string(vescomm_type_get_bytes(given)));
        return given;
    }

    [[noreturn]] void refuse_strides() const {
        refuse(
            "is not contiguous in row-major order (C order); pass an array that is, which the "
            "call then uses in place");
    }

    // Strides in multiples of `unit`, of row-major order.
    template <typename Extent, typename Stride>
    void require_contiguous(std::size_t dimensions, const Extent &extent, const Stride &stride,
                            std::int64_t unit) const {
        std::int64_t elements = 1;
        for (std::size_t i = 0; i < dimensions; ++i) elements *= extent(i);
        if (elements == 0) return;
        std::int64_t expected = unit;
        for (std::size_t i = dimensions; i-- > 0;) {
            if (extent(i) != 1 && stride(i) != expected) refuse_strides();
            expected *= extent(i);
        }
    }

    template <typename Imported>
    Argument from_dlpack(Imported &imported) const {
        if (imported.device_type() != nb::device::cpu::value)
            refuse("is not in host memory, the only kind that vescomm has so far");
        require_contiguous(
            imported.ndim(),
            [&](std::size_t i) { return static_cast<std::int64_t>(imported.shape(i)); },
            [&](std::size_t i) { return imported.stride(i); }, 1);
        const nb::dlpack::dtype dtype = imported.dtype();
        if (dtype.lanes != 1 || dtype.bits % 8 != 0)
            refuse("has elements that are parts of bytes, or several in one");
        Argument argument;
        argument.type = type(type_of(dtype), dtype.bits / 8);
        argument.elements = static_cast<std::int64_t>(imported.size());
        argument.data = const_cast<void *>(static_cast<const void *>(imported.data()));
        return argument;
    }

    // NumPy's arrays of ml_dtypes: neither DLPack nor the buffer protocol has their types.
    std::optional<Argument> from_interface(bool output) const {
        if (is_scalar_of_numpy(array.type()))
            refuse("is a scalar of NumPy, whose value cannot change; give numpy.array() of it");
        const auto found = interface_of(array, subject());
        if (!found) return {};
        const ArrayInterface &interface = *found;
        if (output && interface.read_only) refuse("is read-only; an output is written");
        if (interface.kind == 'O') refuse("has elements that are objects of Python");
        if (interface.kind == 'U') refuse("has elements that are texts");
        if (!interface.native)
            refuse("has elements in an order of bytes that is not this machine's");
        const auto extent = [&](std::size_t i) { return interface.shape[i]; };
        if (interface.strides)
            require_contiguous(
                interface.shape.size(), extent,
                [&](std::size_t i) { return (*interface.strides)[i]; },
                static_cast<std::int64_t>(interface.element_bytes));
        vescomm_type_t natural = VESCOMM_TYPE_DEFAULT;
        if (nb::hasattr(array, "dtype")) {
            const nb::object dtype = array.attr("dtype");
            natural = type_of(std::string_view(nb::str(dtype.attr("name")).c_str()));
            if (natural != VESCOMM_TYPE_DEFAULT) remember_dtype(dtype, natural);
        }
        Argument argument;
        argument.type = type(natural, interface.element_bytes);
        argument.elements = interface.elements;
        argument.data = interface.data;
        argument.owner = nb::borrow(array);
        return argument;
    }

    std::optional<Argument> from_known_dtype(bool output) const {
        const auto known = known_array(array, output);
        if (!known) return {};
        Argument argument;
        argument.type = type(known->type, known->element_bytes);
        argument.elements = known->elements;
        argument.data = known->data;
        argument.owner = nb::borrow(array);
        return argument;
    }

    std::optional<Argument> from_own() const {
        if (!is_own_array(array)) return {};
        if (!nb::inst_ready(array)) refuse("has no memory; Communicator.empty() makes an array");
        const Array &own = *nb::inst_ptr<Array>(array);
        Argument argument;
        argument.owner = nb::borrow(array);
        argument.data = own.data();
        argument.elements = own.elements();
        argument.type = type(own.type(), vescomm_type_get_bytes(own.type()));
        return argument;
    }
};

bool is_array_of_numpy(nb::handle type) {
    const auto is = [&](const char *attribute, const char *value) {
        return nb::getattr(type, attribute, nb::none()).equal(nb::str(value));
    };
    return is("__module__", "numpy") && is("__name__", "ndarray");
}

// JAX exports its immutable arrays as writable ones.
bool is_of_jax(nb::handle type) {
    const nb::object module = nb::getattr(type, "__module__", nb::none());
    if (!nb::isinstance<nb::str>(module)) return false;
    const std::string name = nb::cast<std::string>(module);
    return name == "jax" || name.starts_with("jax.") || name.starts_with("jaxlib");
}

// Properties of all arrays of a type.
struct Traits {
    bool immutable = false;
    bool lazy = false;  // has views that conjugate or negate elements as they are read
    bool dlpack = false;  // exports DLPack, or is a capsule
    bool numpy = false;  // numpy.ndarray
};

Traits traits_of(nb::handle type) {
    struct Known {
        PyObject *type = nullptr;
        Traits traits;
    };
    // The types of recent arrays. Kept, so that no other type gets the address of one.
    static std::array<Known, 4> known{};
    static std::size_t next = 0;
    const auto found = std::ranges::find(known, type.ptr(), &Known::type);
    if (found != known.end()) return found->traits;
    const Traits traits{is_of_jax(type),
                        nb::hasattr(type, "is_conj") && nb::hasattr(type, "is_neg"),
                        exports_dlpack(type), is_array_of_numpy(type)};
    Known &oldest = known[next];
    next = (next + 1) % known.size();
    PyObject *const dropped = std::exchange(oldest.type, Py_NewRef(type.ptr()));
    oldest.traits = traits;
    Py_XDECREF(dropped);
    return traits;
}

// Conjugate and negative views of torch share the memory of other tensors, which holds other values
// than they show. Neither DLPack nor the library can say so.
void refuse_lazy(const Reader &reader) {
    const auto refuse = [&](const std::string &kind, const std::string &resolve) {
        reader.refuse("is a " + kind +
                      " view: its memory holds other values than it shows; pass "
                      "the copy that " +
                      resolve + "() returns");
    };
    if (nb::cast<bool>(reader.array.attr("is_conj")())) refuse("conjugate", "resolve_conj");
    if (nb::cast<bool>(reader.array.attr("is_neg")())) refuse("negative", "resolve_neg");
}

template <typename Imported>
std::optional<Argument> import(const Reader &reader, const Traits &traits,
                               Imported Argument::*member, NoExport &why) {
    Imported imported;
    constexpr bool writable = std::is_same_v<Imported, nb::ndarray<>>;
    const auto take = [&imported](const nb::object &exported) {
        return exported.is_valid() && nb::try_cast(exported, imported, false);
    };
    nb::object capsule;
    if (traits.dlpack) capsule = export_dlpack(reader.array, writable, why);
    // nanobind would import another value, too, such as bytes.
    if (!capsule.is_valid() || !PyCapsule_CheckExact(capsule.ptr()) || !take(capsule)) {
        why.returned = std::move(capsule);
        why.buffer = export_buffer(reader.array, why);
        if (!take(why.buffer) && !take(export_dlpack_of_framework(reader.array))) return {};
    }
    Argument argument = reader.from_dlpack(imported);
    argument.*member = std::move(imported);
    argument.owner = nb::borrow(reader.array);
    return argument;
}

std::string text_attribute(nb::handle object, const char *name) {
    return nb::str(object.attr(name)).c_str();
}

[[noreturn]] void refuse_object(const Reader &reader, NoExport &why) {
    if (why.raised)
        refuse_because(reader.subject() + "is not an array: its __dlpack__() raised " +
                           type_name_of(why.raised->value()) + ": " + text_of(*why.raised),
                       *why.raised);
    const std::string unusable = why.returned.is_valid() ? why_unusable(why.returned) : "";
    if (!unusable.empty()) {
        const bool capsule = PyCapsule_CheckExact(reader.array.ptr());
        reader.refuse((capsule ? "is " : "is not an array: its __dlpack__() returned ") + unusable);
    }
    if (why.buffer_raised)
        refuse_because(reader.subject() + "is not an array: its buffer protocol raised " +
                           type_name_of(why.buffer_raised->value()) + ": " +
                           text_of(*why.buffer_raised),
                       *why.buffer_raised);
    if (why.buffer.is_valid())
        reader.refuse("has elements of format \"" + text_attribute(why.buffer, "format") +
                      "\" of the buffer protocol, which is none of vescomm's types in the order of "
                      "bytes of this machine");
    reader.refuse("is not an array: it has neither __dlpack__() nor the buffer protocol");
}

}  // namespace

Argument read_source(nb::handle array, const char *name, const TypeArgument &type) {
    const Reader reader{array, name, type};
    if (auto own = reader.from_own()) return std::move(*own);
    const Traits traits = traits_of(array.type());
    if (traits.numpy)
        if (auto known = reader.from_known_dtype(false)) return std::move(*known);
    if (traits.lazy) refuse_lazy(reader);
    NoExport why;
    if (auto imported = import(reader, traits, &Argument::readable, why))
        return std::move(*imported);
    if (auto interface = reader.from_interface(false)) return std::move(*interface);
    refuse_object(reader, why);
}

Argument read_output(nb::handle array, const char *name, const TypeArgument &type) {
    const Reader reader{array, name, type};
    if (auto own = reader.from_own()) return std::move(*own);
    const Traits traits = traits_of(array.type());
    if (traits.numpy)
        if (auto known = reader.from_known_dtype(true)) return std::move(*known);
    if (traits.immutable) reader.refuse("is immutable; an output is written");
    if (traits.lazy) refuse_lazy(reader);
    NoExport why;
    if (auto imported = import(reader, traits, &Argument::writable, why))
        return std::move(*imported);
    if (auto interface = reader.from_interface(true)) return std::move(*interface);
    NoExport ignored;
    if (import(reader, traits, &Argument::readable, ignored))
        reader.refuse("is read-only; an output is written");
    refuse_object(reader, why);
}

}  // namespace vescomm::python
