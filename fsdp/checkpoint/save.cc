// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up. data_file.cc touches the bytes.
#include "fsdp/checkpoint/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include "fsdp/checkpoint/data_file.h"
#include "fsdp/checkpoint/error.h"
#include "fsdp/checkpoint/files.h"
#include "fsdp/checkpoint/load.h"
#include "fsdp/checkpoint/manifest.h"
#include "fsdp/checkpoint/report.h"
#include "planner/formats/input_error.h"

namespace vescomm::fsdp::checkpoint {
namespace {

// The name under which `latest` is written before its rename.
constexpr const char *next_latest_file = "latest.new";

// Sizes and checksum of a rank's files, for rank 0.
std::string to_text(const RankFiles &files) {
    return to_json(Manifest{files});
}

class Save {
public:
    Save(const std::string &folder, Agreement &agreement, const SaveOptions &options,
         const SaveContext &context)
        : folder_(folder), agreement_(agreement), options_(options), context_(context) {}

    SaveResult run(std::span<const Piece> pieces, std::span<const Extra> extras) {
        const auto begun = run_on_all(
            agreement_, [&] { return begin(pieces, extras); }, [&] { remove(); });
        result_.save = begun.front();
        const auto written = run_on_all(
            agreement_, [&] { return write(); }, [&] { remove(); });
        const auto committed = run_on_all(
            agreement_, [&] { return is_first() ? commit(written) : ""; }, [&] { remove(); });
        result_.warning = committed.front();
        return result_;
    }

private:
    SystemCalls &calls() const { return *context_.calls; }
    bool is_first() const { return agreement_.rank() == 0; }
    std::string path() const { return folder_ + "/" + result_.save; }

    void check_cancelled() const {
        if (context_.cancelled != nullptr && *context_.cancelled)
            throw Error(VESCOMM_ERROR_ABORTED, "the save was cancelled before it was complete");
    }

    // Returns the name of the save on rank 0, which creates its folder.
    std::string begin(std::span<const Piece> pieces, std::span<const Extra> extras) {
        if (context_.failure) std::rethrow_exception(context_.failure);
        if (options_.keep < 1)
            throw Error(
                VESCOMM_ERROR_INVALID_ARGUMENT,
                fmt::format("saving with keep {}; at least 1 save must remain", options_.keep));
        if (folder_.empty())
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "saving to a folder without a name; give a folder");
        for (const Extra &extra : extras) check_extra_bytes(extra.bytes.size(), agreement_.rank());
        plan_ = plan_data(agreement_.rank(), agreement_.ranks(), pieces, extras,
                          options_.checksum_bytes);
        if (!is_first()) return {};
        make_folders(calls(), folder_);
        lock_.emplace(calls(), folder_);
        number_ = 1;
        for (const std::string &name : names_in(folder_))
            if (const auto number = save_number(name)) number_ = std::max(number_, *number + 1);
        make_folder(calls(), folder_ + "/" + save_name(number_));
        result_.save = save_name(number_);
        return result_.save;
    }

    // Writes the files of this rank. Returns their sizes.
    std::string write() {
        const int rank = agreement_.rank();
        RankFiles files;
        files.data_bytes = write_data(calls(), path() + "/" + data_file_of(rank), plan_,
                                      [&] { check_cancelled(); });
        const std::string index = to_json(plan_.index, in_quotes(path()));
        write_new_file(calls(), path() + "/" + index_file_of(rank), index);
        files.index_bytes = static_cast<std::int64_t>(index.size());
        files.index_checksum = checksum_of(index);
        sync_folder(calls(), path());
        return to_text(files);
    }

    // Makes the new save the latest one. Returns a warning, or nothing.
    std::string commit(const std::vector<std::string> &written) {
        Manifest manifest;
        for (const std::string &text : written)
            manifest.push_back(parse_manifest(text, "the report of a rank").front());
        check_catalogue(manifest);
        check_cancelled();
        write_new_file(calls(), path() + "/" + manifest_file, to_json(manifest));
        sync_folder(calls(), path());
        sync_folder(calls(), folder_);
        const std::string next = folder_ + "/" + next_latest_file;
        remove_file(calls(), next);
        write_new_file(calls(), next, latest_to_json(result_.save));
        rename_file(calls(), next, folder_ + "/" + latest_file);
        committed_ = true;
        // From here on the save exists, and an error does not undo it.
        std::string warning;
        try {
            sync_folder(calls(), folder_);
            remove_old_saves();
        } catch (const Error &error) {
            warning = error.what();
        }
        return warning;
    }

    // Reads all indexes back. Ranks of other nodes have written theirs, so this also finds folders
    // that nodes do not share.
    void check_catalogue(const Manifest &manifest) {
        try {
            read_catalogue(calls(), path(), manifest);
        } catch (const Error &error) {
            throw Error(error.status,
                        fmt::format("{}; all ranks must save to one folder that all nodes share",
                                    error.what()));
        }
    }

    void remove_old_saves() {
        std::vector<std::uint64_t> complete;
        std::vector<std::uint64_t> incomplete;
        for (const std::string &name : names_in(folder_)) {
            const auto number = save_number(name);
            if (!number || *number > number_) continue;
            if (!is_folder(folder_ + "/" + name)) continue;
            const std::vector<std::string> files = names_in_save(folder_ + "/" + name);
            const bool has_manifest = std::ranges::binary_search(files, manifest_file);
            (has_manifest ? complete : incomplete).push_back(*number);
        }
        std::ranges::sort(complete, std::greater<>());
        const auto kept = static_cast<std::size_t>(options_.keep);
        for (std::size_t i = 0; i < complete.size(); ++i)
            if (i >= kept) incomplete.push_back(complete[i]);
        // The manifest goes first: a save without one is incomplete.
        for (const std::uint64_t number : incomplete)
            remove_folder(calls(), folder_ + "/" + save_name(number), manifest_file);
    }

    // Removes the files of a failed save, so that a full disk has space again.
    void remove() noexcept {
        // Without a name this save has no folder yet.
        if (!is_first() || committed_ || result_.save.empty()) return;
        try {
            // A rename that was reported as failed may have happened, on a file system of a
            // network.
            if (find_latest(calls(), folder_) == result_.save) return;
            remove_file(calls(), folder_ + "/" + next_latest_file);
            remove_folder(calls(), path(), manifest_file);
        } catch (const std::exception &) {
            // The next save removes it.
        }
    }

    const std::string folder_;
    Agreement &agreement_;
    const SaveOptions options_;
    const SaveContext context_;
    DataPlan plan_;
    std::optional<FolderLock> lock_;  // rank 0
    std::uint64_t number_ = 0;  // of the new save; rank 0
    bool committed_ = false;
    SaveResult result_;
};

}  // namespace

SaveResult save(const std::string &folder, std::span<const Piece> pieces,
                std::span<const Extra> extras, Agreement &agreement, const SaveOptions &options,
                const SaveContext &context) {
    return Save(folder, agreement, options, context).run(pieces, extras);
}

}  // namespace vescomm::fsdp::checkpoint
