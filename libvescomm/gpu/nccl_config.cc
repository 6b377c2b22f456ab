// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/nccl_config.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gpu/gpu_libraries.h"

namespace vescomm::internal {
namespace {

struct Setting {
    const char *name;
    std::size_t offset;
    bool is_text = false;
    int version = nccl::oldest_version;  // the first one that has it
};

constexpr Setting known_settings[] = {
    {"cgaClusterSize", offsetof(nccl::Config, cga_cluster_size)},
    {"netName", offsetof(nccl::Config, net_name), true},
    {"trafficClass", offsetof(nccl::Config, traffic_class)},
    {"commName", offsetof(nccl::Config, comm_name), true},
    {"collnetEnable", offsetof(nccl::Config, collnet_enable)},
    {"CTAPolicy", offsetof(nccl::Config, cta_policy)},
    {"nvlsCTAs", offsetof(nccl::Config, nvls_ctas)},
    {"nChannelsPerNetPeer", offsetof(nccl::Config, channels_per_net_peer)},
    {"nvlinkCentricSched", offsetof(nccl::Config, nvlink_centric_sched)},
    {"graphUsageMode", offsetof(nccl::Config, graph_usage_mode), false, 22900},
    {"numRmaCtx", offsetof(nccl::Config, rma_contexts), false, 22900},
    {"maxP2pPeers", offsetof(nccl::Config, max_p2p_peers), false, 23000},
    {"graphStreamOrdering", offsetof(nccl::Config, graph_stream_ordering), false, 23005},
};
// Settings that vescomm makes itself.
struct OwnSetting {
    const char *name, *why;
};
constexpr OwnSetting own_settings[] = {
    {"blocking", "set by vescomm"},
    {"minCTAs", "the member min_ctas of the options"},
    {"maxCTAs", "the member max_ctas of the options"},
    {"splitShare", "set by vescomm"},
    {"shrinkShare", "set by vescomm"},
};

struct Given {
    std::string_view name, value;
};

// "a=1,b=2". A part without "=" has no value; one behind a comma at the end is empty.
std::vector<Given> parts_of(std::string_view text) {
    std::vector<Given> parts;
    bool more = !text.empty();
    while (more) {
        const std::string_view part = text.substr(0, text.find(','));
        const std::size_t sign = std::min(part.find('='), part.size());
        parts.push_back({part.substr(0, sign), part.substr(std::min(sign + 1, part.size()))});
        more = part.size() < text.size();
        text.remove_prefix(std::min(part.size() + 1, text.size()));
    }
    return parts;
}

const Setting *find_setting(std::string_view name) {
    const auto found = std::ranges::find(known_settings, name, &Setting::name);
    return found == std::end(known_settings) ? nullptr : &*found;
}

bool read_number(std::string_view text, int &number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::string names_of_settings() {
    std::string names;
    for (const Setting &setting : known_settings)
        names += (names.empty() ? "" : ", ") + std::string(setting.name);
    return names;
}

// Why a setting is refused; empty if it is not.
std::string why_not(const Given &given) {
    const std::string name(given.name);
    for (const OwnSetting &own : own_settings)
        if (own.name == given.name) return name + " is " + own.why + "; leave it out";
    const Setting *setting = find_setting(given.name);
    if (setting == nullptr)
        return "\"" + name + "\" is no setting; there are " + names_of_settings();
    if (given.value.empty()) return name + " has no value; write " + name + "=VALUE";
    int number = 0;
    // INT_MIN is NCCL's value for a member that is left out.
    if (!setting->is_text && (!read_number(given.value, number) || number == INT_MIN))
        return name + " is \"" + std::string(given.value) +
               "\"; it must be a whole number from -2147483647 to 2147483647";
    return {};
}

// A text that stays until the process ends: NCCL may keep its address.
const char *kept(std::string_view text) {
    struct Texts {
        std::mutex mutex;
        std::set<std::string, std::less<>> all;
    };
    static Texts *const texts = new Texts;
    const std::lock_guard<std::mutex> lock(texts->mutex);
    return texts->all.emplace(text).first->c_str();
}

}  // namespace

void check_nccl_settings(const char *function, const std::string &settings) {
    std::set<std::string_view> seen;
    for (const Given &given : parts_of(settings)) {
        std::string why = why_not(given);
        if (why.empty() && !seen.insert(given.name).second)
            why = std::string(given.name) + " is given twice";
        if (!why.empty())
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        std::string(function) + ": nccl_config: " + why);
    }
}

nccl::Config make_nccl_config(const std::string &settings, int nccl_version) {
    nccl::Config config;
    config.blocking = 1;
    for (const nccl::ConfigVersion &one : nccl::config_versions) {
        if (nccl_version < one.version) continue;
        config.version = static_cast<unsigned>(one.version);
        config.size = one.bytes;
        break;
    }
    for (const Given &given : parts_of(settings)) {
        const Setting &setting = *find_setting(given.name);
        if (nccl_version < setting.version)
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        "nccl_config: " + std::string(setting.name) + " needs NCCL " +
                            nccl_version_text(setting.version) + " or later, and " +
                            nccl_version_text(nccl_version) + " is loaded");
        char *member = reinterpret_cast<char *>(&config) + setting.offset;
        const char *text = setting.is_text ? kept(given.value) : nullptr;
        int number = 0;
        if (setting.is_text) {
            std::memcpy(member, &text, sizeof text);
        } else {
            read_number(given.value, number);
            std::memcpy(member, &number, sizeof number);
        }
    }
    return config;
}

}  // namespace vescomm::internal
