// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Lists of tensors in JSON (planner/input/tensor_file.h), and the model that is made of them.
//
// Invariants: an accepted tensor is within its limits; a model contains every tensor once; small
// models have a plan whose layouts hold them.
#include "planner/input/tensor_file.h"

#include <set>

#include "fuzz/fuzz.h"
#include "planner/input/rules.h"

namespace {

using namespace vescomm::internal;
using namespace vescomm::planner;
using fuzz::require;

void check(const std::vector<InputTensor> &tensors) {
    std::set<std::string> names;
    for (const InputTensor &tensor : tensors) {
        require(!tensor.name.empty() && tensor.name.size() <= longest_name &&
                    names.insert(tensor.name).second,
                "a tensor has a name of its own");
        require(tensor.shape.size() <= max_dimensions && count_elements(tensor.shape).has_value(),
                "a tensor has a size");
        require(!tensor.block_rows || *tensor.block_rows >= -1, "blocks are rows, or the tensor");
        require(tensor.batch_dimensions && *tensor.batch_dimensions >= 0 &&
                    *tensor.batch_dimensions <= static_cast<std::int32_t>(tensor.shape.size()),
                "batch dimensions are dimensions");
    }
    const Model model = make_model(tensors, {});
    std::size_t count = 0;
    for (const Unit &unit : model.units) {
        require(!unit.name.empty() && !unit.tensors.empty(), "a unit has a name and tensors");
        count += unit.tensors.size();
    }
    require(count == tensors.size(), "every tensor is in one unit");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    try {
        check(parse_tensor_list(fuzz::view(data, size), "here"));
    } catch (const InputError &error) {
        fuzz::require_sentence(error.what());
        require(std::string_view(error.what()).starts_with("here"), "a sentence says where");
    }
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    return {
        {"two",
         R"({"tensors":[{"name":"layers.0.w","shape":[4,8],"dtype":"bf16","block_rows":2,)"
         R"("batch_dims":0,"align":8,"unit":"u"},{"name":"v","shape":[],"block":"tensor"}]})"},
        {"experts", R"({"tensors":[{"name":"h.1.experts","shape":[2,3,4],"dtype":"torch.float32",)"
                    R"("batch_dims":1}]})"},
        {"packed", R"({"tensors":[{"name":"w","shape":[3,4],"dtype":"F6_E2M3"}]})"},
        {"packed-no-byte", R"({"tensors":[{"name":"w","shape":[3],"dtype":"f4"}]})"},
        {"no-name", R"({"tensors":[{"shape":[3]}]})"},
        {"no-shape", R"({"tensors":[{"name":"w"}]})"},
        {"name-twice", R"({"tensors":[{"name":"w","shape":[]},{"name":"w","shape":[]}]})"},
        {"both-blocks",
         R"({"tensors":[{"name":"w","shape":[2],"block_rows":1,"block":"tensor"}]})"},
        {"other-block", R"({"tensors":[{"name":"w","shape":[2],"block":"row"}]})"},
        {"other-key", R"({"tensors":[{"name":"w","shape":[2],"colour":1}]})"},
        {"negative", R"({"tensors":[{"name":"w","shape":[-1]}]})"},
        {"too-large", R"({"tensors":[{"name":"w","shape":[4611686018427387904,2]}]})"},
        {"beside", R"({"tensors":[],"more":1})"},
        {"no-list", R"({"tensors":{}})"},
        {"no-object", "[1]"},
        {"nothing", ""},
    };
}
