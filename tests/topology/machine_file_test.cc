// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/machine_file.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace vescomm::internal {
namespace {

MachineFile example(MachineFile::Links links) {
    MachineFile file;
    file.processor = "AMD EPYC 9575F 64-Core Processor";
    file.cores = 64;
    file.links = links;
    file.machine.flag_seconds = 7.25e-8;
    file.machine.in_memory.node = 0;
    if (links == MachineFile::Links::tcp) file.machine = file.machine.with_tcp();
    return file;
}

std::string refusal(const std::string &text) {
    try {
        parse_machine_file(text, "the file");
        return "";
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        return error.what();
    }
}

std::string with(std::string text, const std::string &what, const std::string &instead) {
    const std::size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, what.size(), instead);
}

TEST(MachineFile, RestoresWhatWasWritten) {
    for (const auto links :
         {MachineFile::Links::none, MachineFile::Links::tcp, MachineFile::Links::rdma}) {
        MachineFile file = example(links);
        const MachineFile read = parse_machine_file(to_text(file), "the file");
        if (links == MachineFile::Links::tcp) file.machine.rails = 0;  // not in the file
        EXPECT_EQ(read, file);
        EXPECT_EQ(to_text(read), to_text(file));
    }
}

TEST(MachineFile, ErrorsNameTheLineAndTheMistake) {
    const std::string text = to_text(example(MachineFile::Links::tcp));
    EXPECT_EQ(refusal(with(text, "flag_seconds 7.25e-08", "flag_seconds 7.25e-08x")),
              "the file, line 16: flag_seconds must be a number from 0 to 1; measure again "
              "with vescomm-info --measure, or remove the file");
    for (const char *value : {"nan", "inf", "-1e-9", "2", "1e400", "", " 1", "0x1"})
        EXPECT_NE(
            refusal(with(text, "flag_seconds 7.25e-08", "flag_seconds " + std::string(value))), "")
            << value;
    EXPECT_NE(refusal(with(text, "links tcp", "links ib")).find("links are tcp or rdma"),
              std::string::npos);
    EXPECT_NE(refusal(with(text, "cores 64", "core 64")).find("line 3: it must be \"cores VALUE\""),
              std::string::npos);
    EXPECT_NE(refusal(with(text, "processor ", std::string("processor \0", 11)))
                  .find("line 2: it has a control character"),
              std::string::npos);
    EXPECT_NE(refusal(text + "cores 64\n").find("nothing may follow"), std::string::npos);
    EXPECT_NE(refusal(""), "");
    EXPECT_NE(refusal(std::string(1 << 20, 'x')), "");
    EXPECT_NE(refusal(with(text, "vescomm machine 1", "vescomm machine 2")), "");
}

TEST(MachineFile, RefusesTruncatedText) {
    const std::string text = to_text(example(MachineFile::Links::tcp));
    const std::size_t whole_without_links = text.find("links");
    for (std::size_t size = 0; size < text.size(); ++size)
        EXPECT_EQ(refusal(text.substr(0, size)).empty(), size == whole_without_links) << size;
}

// Any text is either refused, or all its numbers are within their bounds.
TEST(MachineFile, RandomChangesNeverGiveNumbersOutOfBounds) {
    std::mt19937 random(1);
    const std::string text = to_text(example(MachineFile::Links::rdma));
    for (int i = 0; i < 20000; ++i) {
        std::string other = text;
        for (int changes = 0; changes < 1 + i % 3; ++changes)
            other[random() % other.size()] = static_cast<char>(random() % 256);
        try {
            const Machine machine = parse_machine_file(other, "the file").machine;
            EXPECT_GE(machine.flag_seconds, 0);
            EXPECT_LE(machine.flag_seconds, 1);
            EXPECT_GE(machine.in_cache.copy, 1e6);
            EXPECT_LE(machine.in_cache.copy, 1e16);
        } catch (const Error &) {
        }
    }
}

TEST(MachineFile, IgnoresLinksOfAnotherTransport) {
    const MachineFile file = example(MachineFile::Links::tcp);
    Machine machine;
    apply(file, false, machine);
    EXPECT_EQ(machine.flag_seconds, 7.25e-8);
    EXPECT_EQ(machine.put_step_seconds, Machine{}.put_step_seconds);
    apply(file, true, machine);
    EXPECT_EQ(machine.put_step_seconds, file.machine.put_step_seconds);
}

TEST(MachineFile, IsNamedAfterProcessorAndCores) {
    EXPECT_EQ(machine_file_name("/cache", "AMD EPYC/9575F", 64),
              "/cache/machine-64-AMD_EPYC_9575F");
}

}  // namespace
}  // namespace vescomm::internal
