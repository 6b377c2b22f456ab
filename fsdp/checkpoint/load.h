// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fsdp/checkpoint/agreement.h"
#include "fsdp/checkpoint/catalogue.h"
#include "fsdp/checkpoint/data_file.h"
#include "fsdp/checkpoint/manifest.h"
#include "fsdp/checkpoint/system_calls.h"
#include "fsdp/checkpoint/tensor.h"

namespace vescomm::fsdp::checkpoint {

// A save, as users name it: FOLDER means its latest save, FOLDER/save-0000000012 that one.
struct SavePath {
    std::string folder;
    std::string save;  // empty: the latest one
};
SavePath split_path(const std::string &path);

// A complete save, open for reading. Any number of processes may read one save.
class Checkpoint {
public:
    // Opens a save, and reads the indexes of all ranks. Throws Error; the sentence names the file.
    // `calls` must outlive this object.
    explicit Checkpoint(SavePath path, SystemCalls &calls = system_calls());
    explicit Checkpoint(const std::string &path, SystemCalls &calls = system_calls())
        : Checkpoint(split_path(path), calls) {}

    const std::string &save() const { return save_; }
    // The tensors, sorted by role and name.
    std::vector<Tensor> tensors() const;

    // Fills the data of the wanted pieces. Reads only chunks that hold wanted elements, and
    // compares their checksums. Throws Error if a tensor is not in the save with that shape and
    // type, if a piece lies outside of its tensor, and if a file cannot be read or is damaged;
    // pieces may then have been filled.
    //
    // Collective: no.  Blocking: yes.  Threads: one at a time per object.
    void read(std::span<const WantedPiece> pieces);

    // Reads bytes [begin, begin + output.size()) of a tensor. For read() and exports.
    void read_bytes(const StoredTensorPieces &stored, std::int64_t begin,
                    std::span<std::byte> output);

    // Returns the bytes of an extra, or nothing if the save has none of that name. Throws Error,
    // also if there are more than `max_bytes`, or more than the file has.
    std::optional<std::string> extra(
        const std::string &name, std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max());
    std::vector<std::string> extras() const;

    const Catalogue &catalogue() const { return *catalogue_; }

private:
    const DataFile &file_of(int rank);
    void read_elements(const StoredTensorPieces &stored, std::int64_t first, std::int64_t count,
                       std::span<std::byte> output);

    SystemCalls &calls_;
    std::string folder_;
    std::string save_;
    Manifest manifest_;
    std::optional<Catalogue> catalogue_;
    std::map<int, DataFile> files_;  // that were read so far
};

// Returns the name of the latest save, or nothing if the folder has no file `latest`. Throws Error
// if that file is damaged; the sentence lists the complete saves.
std::optional<std::string> find_latest(SystemCalls &calls, const std::string &folder);

// Returns the names of the saves with a manifest, oldest first.
std::vector<std::string> list_saves(const std::string &folder);

// Returns the name of the latest save as rank 0 sees it, so that all ranks load one save. Throws
// Error on all ranks if there is none. Collective.
std::string agree_on_latest(const std::string &folder, Agreement &agreement,
                            SystemCalls &calls = system_calls());

// Reads and checks the indexes in the folder of one save. Throws Error or formats::InputError.
Catalogue read_catalogue(SystemCalls &calls, const std::string &path, const Manifest &manifest);

}  // namespace vescomm::fsdp::checkpoint
