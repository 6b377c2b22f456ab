// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The bytes that a step reads do not depend on the number of ranks.
#include "fsdp/examples/train_gpt/text_data.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <numeric>
#include <stdexcept>

namespace train_gpt {

namespace {

namespace fs = std::filesystem;

constexpr int context = 16;

// Bytes that identify their position: any pair of adjacent bytes occurs at few places.
std::vector<std::uint8_t> some_bytes(std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * i / 256 + i);
    return bytes;
}

TextData some_text(std::size_t size = 5000) {
    return {some_bytes(size), "a test", context};
}

// A folder that is removed after the test.
class Folder {
public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "text_data_test.XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
        path_ = name;
    }
    ~Folder() { fs::remove_all(path_); }

    const fs::path &path() const { return path_; }
    void write(const std::string &name, const std::string &text) const {
        fs::create_directories((path_ / name).parent_path());
        std::ofstream(path_ / name, std::ios::binary) << text;
    }

private:
    fs::path path_;
};

template <typename Body>
std::string sentence_of(Body &&body) {
    try {
        body();
    } catch (const std::runtime_error &error) {
        return error.what();
    }
    return "(no error)";
}

void append(std::vector<std::uint8_t> &to, const std::vector<std::uint8_t> &from) {
    to.insert(to.end(), from.begin(), from.end());
}

TEST(ShareOf, CoversEverySequenceOnceAndEvenly) {
    for (int ranks = 1; ranks <= 33; ++ranks) {
        for (const int sequences : {0, 1, 2, 3, 7, 8, 31, 100}) {
            SCOPED_TRACE(testing::Message() << sequences << " sequences on " << ranks << " ranks");
            int next = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                const Share share = share_of(sequences, rank, ranks);
                EXPECT_EQ(share.begin, next);
                EXPECT_GE(share.size(), sequences / ranks);
                EXPECT_LE(share.size(), (sequences + ranks - 1) / ranks);
                next = share.end;
            }
            EXPECT_EQ(next, sequences);
        }
    }
}

TEST(ShareOf, DoesNotOverflow) {
    EXPECT_EQ(share_of(1 << 30, 63, 64).end, 1 << 30);
}

TEST(TextData, GivesTheSameBatchToAnyNumberOfRanks) {
    const TextData text = some_text();
    for (const int batch : {1, 3, 8}) {
        const Batch whole = text.training(7, 11, {0, batch});
        ASSERT_EQ(whole.sequences, batch);
        for (int ranks = 1; ranks <= 9; ++ranks) {
            SCOPED_TRACE(testing::Message() << "batch " << batch << " on " << ranks << " ranks");
            Batch parts;
            for (int rank = 0; rank < ranks; ++rank) {
                const Batch part = text.training(7, 11, share_of(batch, rank, ranks));
                parts.sequences += part.sequences;
                append(parts.inputs, part.inputs);
                append(parts.targets, part.targets);
            }
            EXPECT_EQ(parts.sequences, whole.sequences);
            EXPECT_EQ(parts.inputs, whole.inputs);
            EXPECT_EQ(parts.targets, whole.targets);
        }
    }
}

TEST(TextData, TargetsAreTheNextBytes) {
    const TextData text = some_text();
    for (const Batch &batch : {text.training(1, 0, {0, 50}), text.held_out({0, 4})}) {
        ASSERT_EQ(batch.inputs.size(), static_cast<std::size_t>(batch.sequences) * context);
        ASSERT_EQ(batch.targets.size(), batch.inputs.size());
        for (std::size_t i = 0; i + 1 < batch.inputs.size(); ++i)
            if ((i + 1) % context != 0) {
                EXPECT_EQ(batch.targets[i], batch.inputs[i + 1]);
            }
    }
}

TEST(TextData, DrawsDifferentSequencesForDifferentStepsAndSeeds) {
    const TextData text = some_text();
    const Batch batch = text.training(1, 0, {0, 8});
    EXPECT_NE(batch.inputs, text.training(1, 1, {0, 8}).inputs);
    EXPECT_NE(batch.inputs, text.training(2, 0, {0, 8}).inputs);
    EXPECT_EQ(batch.inputs, text.training(1, 0, {0, 8}).inputs);
}

// All training bytes are 1 and all held-out bytes are 2, so that a wrong byte is detected.
TEST(TextData, NeverTrainsOnTheHeldOutTenth) {
    std::vector<std::uint8_t> bytes(2000, 1);
    std::fill(bytes.begin() + 1800, bytes.end(), std::uint8_t{2});
    const TextData text(bytes, "a test", context);
    ASSERT_EQ(text.held_out_begin(), 1800u);
    for (int step = 0; step < 200; ++step) {
        const Batch batch = text.training(1, step, {0, 16});
        for (const std::uint8_t byte : batch.inputs) ASSERT_EQ(byte, 1);
        for (const std::uint8_t byte : batch.targets) ASSERT_EQ(byte, 1);
    }
    const Batch held_out = text.held_out({0, text.held_out_sequences()});
    for (const std::uint8_t byte : held_out.inputs) ASSERT_EQ(byte, 2);
    for (const std::uint8_t byte : held_out.targets) ASSERT_EQ(byte, 2);
}

TEST(TextData, HeldOutSequencesDoNotOverlap) {
    for (const std::size_t size : {136, 137, 500, 5000, 100000}) {
        SCOPED_TRACE(size);
        const TextData text = some_text(size);
        const auto held_out = size - text.held_out_begin();
        EXPECT_GE(text.held_out_sequences(), 4);
        EXPECT_GE(held_out, text.held_out_sequences() * (context + 1u));
        EXPECT_EQ(text.held_out({0, text.held_out_sequences()}).sequences,
                  text.held_out_sequences());
    }
}

TEST(TextData, ErrorNamesTheMinimumLengthOfAText) {
    EXPECT_EQ(sentence_of([] { some_text(135); }),
              "the text (a test) has 135 bytes; with a context of 16 at least 136 are needed; give "
              "a longer text with --data or a smaller --context");
    some_text(136);
}

TEST(TextData, HashDependsOnBytesOnly) {
    std::vector<std::uint8_t> bytes = some_bytes(5000);
    EXPECT_EQ(some_text().hash(), TextData(bytes, "elsewhere", context).hash());
    bytes[4999] ^= 1;
    EXPECT_NE(some_text().hash(), TextData(bytes, "a test", context).hash());
    EXPECT_EQ(hash_of({}), 0xcbf29ce484222325);
}

TEST(LoadText, ReadsAFolderInTheOrderOfNames) {
    const Folder folder;
    folder.write("b.txt", std::string(100, 'b'));
    folder.write("a/z.txt", std::string(100, 'a'));
    folder.write(".git/config", std::string(100, 'x'));
    folder.write(".hidden", std::string(100, 'x'));
    const TextData text = load_text(folder.path().string(), context);
    const std::string both = std::string(100, 'a') + std::string(100, 'b');
    EXPECT_EQ(text.size(), 200u);
    EXPECT_EQ(text.hash(), hash_of({reinterpret_cast<const std::uint8_t *>(both.data()), 200}));
    EXPECT_EQ(text.source(), "2 files of " + folder.path().string());
}

TEST(LoadText, ReadsAFile) {
    const Folder folder;
    folder.write("text", std::string(300, 't'));
    EXPECT_EQ(load_text((folder.path() / "text").string(), context).size(), 300u);
}

TEST(LoadText, ReportsMissingFiles) {
    EXPECT_EQ(sentence_of([] { load_text("/there/is/no/such/text", context); }),
              "the text --data /there/is/no/such/text cannot be read: No such file or directory");
}

TEST(NewestPython, ComparesVersionsAsNumbersAndIgnoresFoldersOfPackages) {
    const Folder folder;
    folder.write("lib/python3.9/os.py", "");
    folder.write("lib/python3.11/os.py", "");
    folder.write("lib/python3.13/dist-packages/numpy.py", "");
    folder.write("lib/python3/os.py", "");
    folder.write("local/python3.10/os.py", "");
    folder.write("local/python3.12-gnu/os.py", "");
    const fs::path places[] = {folder.path() / "lib", folder.path() / "nothing",
                               folder.path() / "local"};
    EXPECT_EQ(newest_python(places), folder.path() / "lib/python3.11");
    EXPECT_EQ(newest_python({}), fs::path());
}

}  // namespace

}  // namespace train_gpt
