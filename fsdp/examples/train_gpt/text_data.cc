// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/text_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <functional>
#include <set>
#include <stdexcept>
#include <system_error>

#include "fsdp/examples/train_gpt/random.h"

namespace train_gpt {

namespace {

namespace fs = std::filesystem;

// Every rank keeps the text. The standard library is about 12 MiB without its tests; a
// demonstration reads less than 1 MiB of it.
constexpr std::size_t max_python_bytes = std::size_t{8} << 20;
constexpr std::size_t max_bytes = std::size_t{64} << 20;

// Enough to distinguish a good model from a better one by the held-out loss, and few enough to cost
// little more than one step.
constexpr int max_held_out_sequences = 64;
constexpr int min_held_out_sequences = 4;

bool is_hidden(const fs::path &path) {
    return path.filename().string().starts_with(".");
}

// Returns true for folders of tests and of packages outside the standard library.
bool is_foreign_to_python(const fs::path &path) {
    static const std::set<std::string> names = {"test",          "tests",         "idle_test",
                                                "site-packages", "dist-packages", "__pycache__"};
    return names.contains(path.filename().string());
}

struct Files {
    std::vector<fs::path> paths;
    std::function<bool(const fs::path &)> skip_folder;
    std::function<bool(const fs::path &)> take_file;

    void collect(const fs::path &folder) try {
        for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
            if (entry->is_directory() && skip_folder(entry->path())) {
                entry.disable_recursion_pending();
            } else if (entry->is_regular_file() && take_file(entry->path())) {
                paths.push_back(entry->path());
            }
        }
        // The order of directory entries is arbitrary, but every rank must read the same text.
        std::sort(paths.begin(), paths.end());
    } catch (const fs::filesystem_error &error) {
        throw std::runtime_error(fmt::format(
            "the text in {} cannot be read: {}; name another folder or file with --data",
            error.path1().string(), error.code().message()));
    }
};

void append_file(const fs::path &path, std::size_t max, std::vector<std::uint8_t> &bytes) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    const std::size_t begin = bytes.size();
    std::error_code error;
    const auto found = file ? fs::file_size(path, error) : 0;
    if (error)
        throw std::runtime_error(
            fmt::format("the text {} cannot be read: it has no size ({}); name a file or a folder "
                        "with --data",
                        path.string(), error.message()));
    const auto size = static_cast<std::size_t>(found);
    bytes.resize(std::min(max, begin + size));
    file.read(reinterpret_cast<char *>(bytes.data() + begin),
              static_cast<std::streamsize>(bytes.size() - begin));
    if (!file)
        throw std::runtime_error(fmt::format("the text {} cannot be read: {}", path.string(),
                                             std::generic_category().message(errno)));
}

TextData read_files(const Files &files, const fs::path &folder, std::size_t max, int context) {
    std::vector<std::uint8_t> bytes;
    std::size_t taken = 0;
    for (const fs::path &path : files.paths) {
        if (bytes.size() >= max) break;
        append_file(path, max, bytes);
        ++taken;
    }
    const std::string number = taken < files.paths.size() ? fmt::format("the first {} of {} files",
                                                                        taken, files.paths.size())
                                                          : fmt::format("{} files", taken);
    return TextData(std::move(bytes), fmt::format("{} of {}", number, folder.string()), context);
}

TextData load_python(int context) {
    const fs::path places[] = {"/usr/lib", "/usr/lib64", "/usr/local/lib"};
    const fs::path folder = newest_python(places);
    if (folder.empty())
        throw std::runtime_error(
            "there is no Python standard library to learn in /usr/lib, /usr/lib64 or "
            "/usr/local/lib; name a file or a folder of text with --data");
    Files files;
    files.skip_folder = is_foreign_to_python;
    files.take_file = [](const fs::path &path) { return path.extension() == ".py"; };
    files.collect(folder);
    return read_files(files, folder, max_python_bytes, context);
}

}  // namespace

Share share_of(int sequences, int rank, int ranks) {
    const auto cut = [&](std::int64_t k) { return static_cast<int>(k * sequences / ranks); };
    return {cut(rank), cut(rank + 1)};
}

TextData::TextData(std::vector<std::uint8_t> bytes, std::string source, int context)
    : bytes_(std::move(bytes)), source_(std::move(source)), context_(context) {
    // A sequence and the byte that follows it.
    const auto one = static_cast<std::size_t>(context) + 1;
    const std::size_t min = 2 * min_held_out_sequences * one;
    if (bytes_.size() < min)
        throw std::runtime_error(fmt::format(
            "the text ({}) has {} bytes; with a context of {} at least {} are needed; give a "
            "longer text with --data or a smaller --context",
            source_, bytes_.size(), context, min));
    const std::size_t held_out = std::max(bytes_.size() / 10, min_held_out_sequences * one);
    held_out_begin_ = bytes_.size() - held_out;
    held_out_sequences_ =
        static_cast<int>(std::min<std::size_t>(max_held_out_sequences, held_out / one));
}

namespace {

void append_sequence(std::span<const std::uint8_t> from, std::size_t position, int context,
                     Batch &batch) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(position);
    batch.inputs.insert(batch.inputs.end(), begin, begin + context);
    batch.targets.insert(batch.targets.end(), begin + 1, begin + context + 1);
    ++batch.sequences;
}

}  // namespace

Batch TextData::training(std::uint64_t seed, int step, Share share) const {
    const RandomStream positions(seed, RandomStream::Purpose::position,
                                 {static_cast<std::uint64_t>(step)});
    const auto text = std::span(bytes_).first(held_out_begin_);
    Batch batch;
    for (int sequence = share.begin; sequence < share.end; ++sequence)
        append_sequence(text, positions.below(sequence, text.size() - context_), context_, batch);
    return batch;
}

Batch TextData::held_out(Share share) const {
    const auto text = std::span(bytes_).subspan(held_out_begin_);
    const std::size_t distance = text.size() / held_out_sequences_;
    Batch batch;
    for (int sequence = share.begin; sequence < share.end; ++sequence)
        append_sequence(text, sequence * distance, context_, batch);
    return batch;
}

std::uint64_t TextData::hash() const {
    return hash_of(bytes_);
}

std::uint64_t hash_of(std::span<const std::uint8_t> bytes) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
    return hash;
}

fs::path newest_python(std::span<const fs::path> places) {
    fs::path newest;
    int newest_minor = -1;
    for (const fs::path &place : places) {
        std::error_code missing;
        for (const fs::directory_entry &entry : fs::directory_iterator(place, missing)) {
            const std::string name = entry.path().filename().string();
            constexpr std::string_view prefix = "python3.";
            if (!name.starts_with(prefix)) continue;
            int minor = 0;
            const char *end = name.data() + name.size();
            const auto [rest, wrong] = std::from_chars(name.data() + prefix.size(), end, minor);
            if (wrong != std::errc() || rest != end || minor <= newest_minor) continue;
            // On Debian some folders with such a name contain only packages.
            if (!fs::exists(entry.path() / "os.py", missing)) continue;
            newest = entry.path();
            newest_minor = minor;
        }
    }
    return newest;
}

TextData load_text(const std::string &path, int context) {
    if (path.empty()) return load_python(context);
    std::error_code failure;
    const fs::file_status status = fs::status(path, failure);
    if (!fs::exists(status))
        throw std::runtime_error(fmt::format("the text --data {} cannot be read: {}", path,
                                             failure ? failure.message() : "it does not exist"));
    if (fs::is_directory(status)) {
        Files files;
        files.skip_folder = is_hidden;
        files.take_file = [](const fs::path &file) { return !is_hidden(file); };
        files.collect(path);
        return read_files(files, path, max_bytes, context);
    }
    std::vector<std::uint8_t> bytes;
    append_file(path, max_bytes, bytes);
    return TextData(std::move(bytes), path, context);
}

}  // namespace train_gpt
