// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "layout.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <vector>

#include "convert.h"
#include "docs.h"
#include "errors.h"
#include "integer.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// Tensors of Python: objects with the members of vescomm.Tensor.
Layout from_tensors(const nb::sequence &tensors, std::int64_t elements, const Integers &cuts) {
    std::vector<vescomm_tensor_t> plain;
    // Elements of a deque keep their addresses.
    std::deque<std::string> names;
    std::deque<Integers> shapes;
    for (const nb::handle each : tensors) {
        const auto place = [index = plain.size()](const char *member) {
            return Place{"tensors", index, member};
        };
        const auto member = [&](const char *name) { return member_of(each, place(name)); };
        const auto integer = [&](const char *name) {
            return read_integer(member(name), place(name));
        };
        names.push_back(read_text(member("name"), place("name")));
        shapes.push_back(read_integers(member("shape"), place("shape")));
        vescomm_tensor_t tensor = vescomm_tensor_init();
        tensor.name = names.back().c_str();
        tensor.dimensions = static_cast<std::int32_t>(shapes.back().values.size());
        tensor.shape = shapes.back().values.data();
        tensor.offset = integer("offset");
        tensor.block = integer("block");
        tensor.batch_dimensions = read_small(member("batch_dimensions"), place("batch_dimensions"));
        plain.push_back(tensor);
    }
    if (cuts.values.size() < 2)
        refuse("cuts has " + std::to_string(cuts.values.size()) +
               " numbers; give one more than there are ranks");
    vescomm_layout_t *layout = nullptr;
    check(vescomm_layout_create(plain.data(), plain.size(), elements, cuts.values.data(),
                                static_cast<std::int32_t>(cuts.values.size()) - 1, &layout));
    return Layout(layout);
}

Layout from_counts(const Integers &counts) {
    if (counts.values.empty()) refuse("counts is empty; give one number for each rank");
    vescomm_layout_t *layout = nullptr;
    check(vescomm_layout_create_from_counts(
        counts.values.data(), static_cast<std::int32_t>(counts.values.size()), &layout));
    return Layout(layout);
}

Layout parse(const nb::bytes &bytes) {
    vescomm_layout_t *layout = nullptr;
    check(vescomm_layout_parse(bytes.c_str(), bytes.size(), &layout));
    return Layout(layout);
}

nb::tuple describe(const Layout &layout, std::size_t index) {
    const vescomm_tensor_t tensor = layout.tensor(index);
    nb::list shape;
    for (int i = 0; i < tensor.dimensions; ++i) shape.append(tensor.shape[i]);
    // The names of a layout that was read from bytes may have any bytes.
    return nb::make_tuple(to_str(tensor.name), nb::tuple(shape), tensor.offset, tensor.block,
                          tensor.batch_dimensions);
}

nb::tuple describe(const vescomm_piece_t &piece) {
    return nb::make_tuple(piece.tensor, piece.first, piece.elements, piece.offset);
}

nb::tuple shard(const Layout &layout, Integer rank) {
    std::int64_t begin = 0, end = 0;
    check(vescomm_layout_get_shard(layout.get(), rank.small("rank"), &begin, &end));
    return nb::make_tuple(begin, end);
}

nb::list pieces(const Layout &layout, Integer rank) {
    std::size_t count = 0;
    check(vescomm_layout_get_pieces(layout.get(), rank.small("rank"), nullptr, 0, &count));
    std::vector<vescomm_piece_t> all(count);
    check(vescomm_layout_get_pieces(layout.get(), rank.small("rank"), all.data(), count, &count));
    nb::list list;
    for (const vescomm_piece_t &piece : all) list.append(describe(piece));
    return list;
}

nb::tuple piece(const Layout &layout, nb::handle tensor, Integer rank) {
    vescomm_piece_t piece{};
    check(vescomm_layout_get_piece(layout.get(), layout.index(tensor), rank.small("rank"), &piece));
    piece.tensor = layout.index(tensor);
    return describe(piece);
}

// Each box as (starts, extents).
nb::list boxes(const Layout &layout, nb::handle tensor, Integer first, Integer elements) {
    const std::size_t index = layout.index(tensor);
    const auto dimensions = static_cast<std::size_t>(layout.tensor(index).dimensions);
    std::size_t count = 0;
    check(vescomm_layout_get_boxes(layout.get(), index, first, elements, nullptr, 0, &count));
    std::vector<std::int64_t> numbers(count * 2 * dimensions);
    check(vescomm_layout_get_boxes(layout.get(), index, first, elements, numbers.data(), count,
                                   &count));
    nb::list list;
    for (std::size_t box = 0; box < count; ++box) {
        nb::list starts, extents;
        for (std::size_t i = 0; i < dimensions; ++i) {
            starts.append(numbers[2 * dimensions * box + i]);
            extents.append(numbers[2 * dimensions * box + dimensions + i]);
        }
        list.append(nb::make_tuple(nb::tuple(starts), nb::tuple(extents)));
    }
    return list;
}

}  // namespace

vescomm_layout_info_t Layout::info() const {
    vescomm_layout_info_t info = vescomm_layout_info_init();
    check(vescomm_layout_get_info(get(), &info));
    return info;
}

std::size_t Layout::index(nb::handle which) const {
    std::size_t index = 0;
    if (PyUnicode_Check(which.ptr())) {
        const std::string name = read_text(which, {{}, 0, "the name of the tensor"});
        check(vescomm_layout_find_tensor(get(), name.c_str(), &index));
        return index;
    }
    const auto count = static_cast<std::int64_t>(info().tensors);
    std::int64_t number = 0;
    if (!read_integer(which.ptr(), number))
        refuse_type("a tensor is given by its name or its index, not by a value of type " +
                    type_name_of(which));
    if (number < -count || number >= count)
        throw nb::index_error(
            ("tensor " + std::to_string(number) + " of a layout that has " + std::to_string(count))
                .c_str());
    return static_cast<std::size_t>(number < 0 ? number + count : number);
}

vescomm_tensor_t Layout::tensor(std::size_t index) const {
    vescomm_tensor_t tensor = vescomm_tensor_init();
    check(vescomm_layout_get_tensor(get(), index, &tensor));
    return tensor;
}

std::string Layout::bytes() const {
    std::size_t size = 0;
    check(vescomm_layout_serialise(get(), nullptr, 0, &size));
    std::string bytes(size, '\0');
    check(vescomm_layout_serialise(get(), bytes.data(), bytes.size(), &size));
    return bytes;
}

void define_layout(nb::module_ &module) {
    nb::class_<Layout>(module, "Layout", nb::is_weak_referenceable())
        .def("__init__", [](Layout *layout, const Layout &other) { new (layout) Layout(other); })
        .def_static("_from_tensors", from_tensors)
        .def_static("_from_counts", from_counts)
        .def_static("_parse", parse)
        .def(
            "to_bytes",
            [](const Layout &layout) {
                const std::string bytes = layout.bytes();
                return nb::bytes(bytes.data(), bytes.size());
            },
            docs::layout_to_bytes)
        .def_prop_ro(
            "ranks", [](const Layout &layout) { return layout.info().ranks; }, docs::layout_ranks)
        .def_prop_ro(
            "elements", [](const Layout &layout) { return layout.info().elements; },
            docs::layout_elements)
        .def_prop_ro(
            "padding", [](const Layout &layout) { return layout.info().padding; },
            docs::layout_padding)
        .def_prop_ro(
            "largest", [](const Layout &layout) { return layout.info().largest; },
            docs::layout_largest)
        .def_prop_ro(
            "hash", [](const Layout &layout) { return layout.info().hash; }, docs::layout_hash)
        .def_prop_ro("_tensors", [](const Layout &layout) { return layout.info().tensors; })
        .def(
            "find", [](const Layout &layout, nb::handle which) { return layout.index(which); },
            docs::layout_find)
        .def("_tensor", [](const Layout &layout,
                           nb::handle which) { return describe(layout, layout.index(which)); })
        .def("shard", shard, docs::layout_shard)
        .def("_pieces", pieces)
        .def("_piece", piece)
        .def("boxes", boxes, docs::layout_boxes);
}

}  // namespace vescomm::python
