// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
//     export_example FOLDER
//
// Saves tensors of all types at three ranks in FOLDER/checkpoint, exports them to FOLDER/export in
// several files, and writes their expected bytes to FOLDER/expected. export_test.py compares them.
#include <cstdio>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/checkpoint/export.h"

int main(int argc, char **argv) {
    using namespace vescomm;
    using namespace vescomm::fsdp::checkpoint;
    using namespace vescomm::fsdp::checkpoint::testing_support;
    if (argc != 2) {
        std::fprintf(stderr, "usage: export_example FOLDER\n");
        return 2;
    }
    const std::string folder = argv[1];
    std::vector<Tensor> model = model_of_all_types();
    for (Tensor &tensor : model) {
        // One role, so that one export has all types.
        if (tensor.role != "master") tensor.name += "." + tensor.role;
        tensor.role = "master";
    }
    for (const std::string &error : save_at(folder + "/checkpoint", 3, model, 1)) {
        if (error.empty()) continue;
        std::fprintf(stderr, "%s\n", error.c_str());
        return 1;
    }
    Checkpoint checkpoint(folder + "/checkpoint");
    export_safetensors(checkpoint, folder + "/export", {"master", 600});
    fs::create_directory(folder + "/expected");
    int number = 0;
    for (const auto &[key, stored] : checkpoint.catalogue().tensors()) {
        const Tensor &tensor = stored.tensor;
        const std::string file = folder + "/expected/" + std::to_string(number++);
        std::string description = tensor.name + "\n";
        description += *formats::safetensors_name_of(tensor.type);
        description += "\n";
        for (const std::int64_t extent : tensor.shape) description += std::to_string(extent) + " ";
        write_text(file + ".txt", description + "\n");
        write_text(file + ".bytes", values_of(tensor, 0, elements_of(tensor)));
    }
    return 0;
}
