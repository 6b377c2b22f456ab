// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "fsdp/checkpoint/load.h"
#include "fsdp/checkpoint/system_calls.h"

namespace vescomm::fsdp::checkpoint {

struct ExportOptions {
    std::string role = "master";  // of the tensors that are exported
    // A file ends before it would have more bytes of data. A larger tensor has a file of its own.
    std::int64_t max_file_bytes = 5'000'000'000;  // the default of transformers
};

// Writes the whole tensors of one role in the sharded format of Hugging Face:
//
//     model-00001-of-00003.safetensors, ...     tensors under their names
//     model.safetensors.index.json              the file of each tensor
//
// Before: `output` does not exist or is an empty folder. After: it is complete; on any error it is
// as before. Throws Error.
//
// Collective: no; one rank calls it.  Blocking: yes.  Cost: each byte is read, its checksum is
// compared, and it is written; memory of a few megabytes.
void export_safetensors(Checkpoint &checkpoint, const std::string &output,
                        const ExportOptions &options = {}, SystemCalls &calls = system_calls());

}  // namespace vescomm::fsdp::checkpoint
