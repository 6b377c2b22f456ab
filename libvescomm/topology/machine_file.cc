// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/machine_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"

namespace vescomm::internal {

namespace {

constexpr std::string_view first_line = "vescomm machine 1";
constexpr std::size_t max_bytes = 16 << 10;

// Allowed values of a field: from min to max.
struct Range {
    double min, max;
    bool or_zero = false;  // 0 is allowed too; it means no limit
};
constexpr Range seconds{0, 1};
constexpr Range speed{1e6, 1e16};
constexpr Range limit{1e6, 1e16, true};
constexpr Range size{1 << 10, 1e15};
constexpr Range factor{1e-3, 1e3};

struct Field {
    std::string_view name;
    Range range;
    double &(*of)(Machine &);
};

#define VESCOMM_FIELD(name, range, member)                                       \
    {                                                                            \
        name, range, [](Machine &machine) -> double & { return machine.member; } \
    }
constexpr Field within_node[] = {
    VESCOMM_FIELD("cache_bytes", size, cache_bytes),
    VESCOMM_FIELD("cache_copy", speed, in_cache.copy),
    VESCOMM_FIELD("cache_reduce", speed, in_cache.reduce),
    VESCOMM_FIELD("cache_node", limit, in_cache.node),
    VESCOMM_FIELD("memory_copy", speed, in_memory.copy),
    VESCOMM_FIELD("memory_reduce", speed, in_memory.reduce),
    VESCOMM_FIELD("memory_node", limit, in_memory.node),
    VESCOMM_FIELD("reduce_1_byte", factor, reduce_of_width[0]),
    VESCOMM_FIELD("reduce_2_bytes", factor, reduce_of_width[1]),
    VESCOMM_FIELD("reduce_8_bytes", factor, reduce_of_width[3]),
    VESCOMM_FIELD("call_seconds", seconds, call_seconds),
    VESCOMM_FIELD("step_seconds", seconds, step_seconds),
    VESCOMM_FIELD("flag_seconds", seconds, flag_seconds),
    VESCOMM_FIELD("switch_seconds", seconds, switch_seconds),
};
constexpr Field between_nodes[] = {
    VESCOMM_FIELD("put_step_seconds", seconds, put_step_seconds),
    VESCOMM_FIELD("put_core_bytes", limit, put_core_bytes),
    VESCOMM_FIELD("receive_seconds", seconds, receive_seconds),
    VESCOMM_FIELD("receive_core_bytes", limit, receive_core_bytes),
    VESCOMM_FIELD("put_seconds", seconds, put_seconds),
    VESCOMM_FIELD("signal_seconds", seconds, signal_seconds),
    VESCOMM_FIELD("rail_bytes", limit, rail_bytes),
};
#undef VESCOMM_FIELD

std::string shortest(double value) {
    char digits[32];
    return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

// Reads the lines of a text in order. A line is a name, a space and a value.
class Reader {
public:
    Reader(std::string_view text, const std::string &name) : text_(text), name_(name) {}

    bool at_end() const { return at_ >= text_.size(); }
    [[noreturn]] void refuse(const std::string &why) const {
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    name_ + ", line " + std::to_string(line_) + ": " + why +
                        "; measure again with vescomm-info --measure, or remove the file");
    }
    std::string_view line() {
        ++line_;
        const std::size_t end = text_.find('\n', at_);
        if (end == std::string_view::npos) refuse("it does not end");
        const std::string_view line = text_.substr(at_, end - at_);
        at_ = end + 1;
        return line;
    }
    std::string_view value_of(std::string_view field) {
        const std::string_view text = at_end() ? (++line_, std::string_view()) : line();
        if (!text.starts_with(field) || text.size() <= field.size() + 1 ||
            text[field.size()] != ' ')
            refuse("it must be \"" + std::string(field) + " VALUE\"");
        const auto is_control = [](char letter) {
            return static_cast<unsigned char>(letter) < ' ' || letter == 0x7f;
        };
        if (std::ranges::any_of(text, is_control)) refuse("it has a control character");
        return text.substr(field.size() + 1);
    }
    double number(std::string_view field, Range range) {
        const std::string_view text = value_of(field);
        double number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number) ||
            (!(range.or_zero && number == 0) && (number < range.min || number > range.max)))
            refuse(std::string(field) + " must be " + (range.or_zero ? "0, or " : "") +
                   "a number from " + shortest(range.min) + " to " + shortest(range.max));
        return number;
    }

private:
    std::string_view text_;
    const std::string &name_;
    std::size_t at_ = 0;
    int line_ = 0;
};

void read(Reader &reader, std::span<const Field> fields, Machine &machine) {
    for (const Field &field : fields) field.of(machine) = reader.number(field.name, field.range);
}
void write(std::string &text, std::span<const Field> fields, Machine machine) {
    for (const Field &field : fields)
        text += std::string(field.name) + " " + shortest(field.of(machine)) + "\n";
}
void copy(std::span<const Field> fields, Machine from, Machine &to) {
    for (const Field &field : fields) field.of(to) = field.of(from);
}

}  // namespace

std::string to_text(const MachineFile &file) {
    std::string text = std::string(first_line) + "\nprocessor " + file.processor + "\ncores " +
                       std::to_string(file.cores) + "\n";
    write(text, within_node, file.machine);
    if (file.links == MachineFile::Links::none) return text;
    text += std::string("links ") + (file.links == MachineFile::Links::tcp ? "tcp" : "rdma") + "\n";
    write(text, between_nodes, file.machine);
    return text;
}

MachineFile parse_machine_file(std::string_view text, const std::string &name) {
    if (text.size() > max_bytes)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    name + ", line 1: the file has more than " + std::to_string(max_bytes) +
                        " bytes; measure again with vescomm-info --measure, or remove the file");
    Reader reader(text, name);
    if (text.empty() || reader.line() != first_line)
        reader.refuse("it must be \"" + std::string(first_line) + "\"");
    MachineFile file;
    file.processor = reader.value_of("processor");
    constexpr double max_cores = 1 << 20;
    file.cores = static_cast<int>(reader.number("cores", {1, max_cores}));
    read(reader, within_node, file.machine);
    if (reader.at_end()) return file;
    const std::string_view links = reader.value_of("links");
    if (links != "tcp" && links != "rdma") reader.refuse("links are tcp or rdma");
    file.links = links == "tcp" ? MachineFile::Links::tcp : MachineFile::Links::rdma;
    read(reader, between_nodes, file.machine);
    if (!reader.at_end()) reader.refuse("nothing may follow");
    return file;
}

void apply(const MachineFile &file, bool tcp, Machine &machine) {
    copy(within_node, file.machine, machine);
    if (file.links == (tcp ? MachineFile::Links::tcp : MachineFile::Links::rdma))
        copy(between_nodes, file.machine, machine);
}

std::string machine_file_name(const std::string &folder, const std::string &processor, int cores) {
    std::string name = folder + "/machine-" + std::to_string(cores) + "-";
    for (const char letter : processor) {
        const bool plain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                           (letter >= 'A' && letter <= 'Z');
        name += plain ? letter : '_';
    }
    return name;
}

}  // namespace vescomm::internal
