// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target without libFuzzer, with any compiler:
//
//     fuzz_TARGET [--mutations N] [--seed S] FILE-OR-FOLDER...   the inputs, then mutations of them
//     fuzz_TARGET --write-seeds FOLDER                           writes the target's seeds
//
// Mutations depend only on the seed and the corpus, so runs are reproducible. An input that ends
// the process, or takes longer than two minutes, is written to crash-TARGET in the current folder.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz/fuzz.h"

// Defined by the sanitizers; null in other builds.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

namespace fs = std::filesystem;
using vescomm::internal::fuzz::Seed;

constexpr std::size_t max_input_bytes = 4096;
constexpr unsigned max_seconds_of_an_input = 120;

// The input under test, for the signal handler.
const char *current_data = nullptr;
std::size_t current_size = 0;
char crash_file[256] = "crash-input";
char program[512];

void print(const char *text) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void save_input() {
    if (current_data == nullptr) return;
    const int file = open(crash_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const bool saved =
        file >= 0 && write(file, current_data, current_size) == static_cast<ssize_t>(current_size);
    current_data = nullptr;
    if (!saved) {
        print("the input that failed could not be written\n");
        return;
    }
    print("the input that failed is in ");
    print(crash_file);
    print("\nreproduce with: ");
    print(program);
    print(" ");
    print(crash_file);
    print("\n");
}

void die(int signal) {
    if (signal == SIGALRM) print("an input takes too long\n");
    save_input();
    ::signal(signal, SIG_DFL);
    raise(signal);
}

void run(const std::string &input) {
    // Allocated with exactly the input's size, so that sanitizers detect a read past its end.
    const std::vector<std::uint8_t> bytes(input.begin(), input.end());
    current_data = input.data();
    current_size = input.size();
    alarm(max_seconds_of_an_input);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    alarm(0);
    current_data = nullptr;
}

class Mutator {
public:
    Mutator(const std::vector<std::string> &corpus, unsigned seed)
        : corpus_(corpus), random_(seed) {}

    std::string next() {
        std::string input = corpus_[below(corpus_.size())];
        for (std::size_t i = 0, changes = 1 + below(4); i < changes; ++i) change(input);
        if (input.size() > max_input_bytes) input.resize(max_input_bytes);
        return input;
    }

private:
    std::size_t below(std::size_t limit) { return random_() % std::max<std::size_t>(limit, 1); }

    void change(std::string &input) {
        static constexpr std::uint64_t edges[] = {0,
                                                  1,
                                                  2,
                                                  7,
                                                  8,
                                                  16,
                                                  63,
                                                  64,
                                                  127,
                                                  128,
                                                  255,
                                                  256,
                                                  4096,
                                                  0x7fffffff,
                                                  0x80000000,
                                                  0xffffffff,
                                                  0x100000000,
                                                  0x7fffffffffffffff,
                                                  0x8000000000000000,
                                                  0xffffffffffffffff};
        const std::size_t at = below(input.size() + 1);
        const std::size_t span = std::min(1 + below(16), input.size() - at);
        switch (below(8)) {
            case 0:
                if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
                break;
            case 1:
                if (at < input.size()) input[at] = static_cast<char>(random_());
                break;
            case 2:
                input.erase(at, span);
                break;
            case 3:
                input.insert(at, input.substr(at, span));
                break;
            case 4:
                input.insert(at, 1 + below(8), static_cast<char>(random_()));
                break;
            case 5: {
                const std::uint64_t edge = edges[below(std::size(edges))] + below(3) - 1;
                const std::size_t width = std::size_t{1} << below(4);
                for (std::size_t i = 0; i < width && at + i < input.size(); ++i)
                    input[at + i] = static_cast<char>(edge >> (8 * i));
                break;
            }
            case 6:
                input.resize(at);
                break;
            default: {
                // Inserts a piece of another input of the corpus.
                const std::string &other = corpus_[below(corpus_.size())];
                const std::size_t from = below(other.size() + 1);
                input.replace(at, below(2) * span, other.substr(from, 1 + below(64)));
                break;
            }
        }
    }

    const std::vector<std::string> &corpus_;
    std::mt19937 random_;
};

std::string read(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (file.bad() || !file.is_open()) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        std::exit(2);
    }
    return bytes;
}

int write_seeds(const fs::path &folder) {
    fs::create_directories(folder);
    for (const Seed &seed : vescomm::internal::fuzz::seeds()) {
        std::ofstream file(folder / seed.name, std::ios::binary);
        file << seed.bytes;
        if (!file.flush()) {
            std::fprintf(stderr, "cannot write %s\n", (folder / seed.name).c_str());
            return 1;
        }
    }
    return 0;
}

unsigned number(const char *text) {
    unsigned value = 0;
    const char *end = text + std::strlen(text);
    if (std::from_chars(text, end, value).ptr == end && end != text) return value;
    std::fprintf(stderr, "%s is not a number\n", text);
    std::exit(2);
}

std::vector<fs::path> files_of(const fs::path &path) {
    if (!fs::is_directory(path)) return {path};
    std::vector<fs::path> files;
    for (const auto &entry : fs::directory_iterator(path)) files.push_back(entry.path());
    // Mutations must not depend on the order in which the file system lists a folder.
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace

int main(int argc, char **argv) {
    unsigned mutations = 0, seed = 1;
    std::vector<fs::path> files;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--write-seeds" && i + 1 < argc) return write_seeds(argv[i + 1]);
        if (argument == "--mutations" && i + 1 < argc) mutations = number(argv[++i]);
        else if (argument == "--seed" && i + 1 < argc) seed = number(argv[++i]);
        else
            for (fs::path &file : files_of(argv[i])) files.push_back(std::move(file));
    }
    std::snprintf(program, sizeof program, "%s", argv[0]);
    std::snprintf(crash_file, sizeof crash_file, "crash-%s", fs::path(argv[0]).filename().c_str());
    if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_input);
    for (const int signal : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, die);
    // Sanitizers handle SIGSEGV themselves.
    if (__sanitizer_set_death_callback == nullptr) ::signal(SIGSEGV, die);

    std::vector<std::string> corpus;
    for (const fs::path &file : files) corpus.push_back(read(file));
    for (const std::string &input : corpus) run(input);
    // Current seeds are included as well, in case the format has changed since the corpus was made.
    std::vector<Seed> made_now;
    if (mutations > 0) made_now = vescomm::internal::fuzz::seeds();
    for (Seed &made : made_now) {
        if (std::ranges::find(corpus, made.bytes) != corpus.end()) continue;
        run(made.bytes);
        corpus.push_back(std::move(made.bytes));
    }
    if (corpus.empty()) {
        std::fprintf(stderr, "there is no input\n");
        return 2;
    }
    Mutator mutator(corpus, seed);
    for (unsigned i = 0; i < mutations; ++i) run(mutator.next());
    std::printf("%zu inputs and %u mutations (seed %u)\n", corpus.size(), mutations, seed);
    return 0;
}
