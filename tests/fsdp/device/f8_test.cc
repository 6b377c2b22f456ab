// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Parameters in f8 on device memory: the codes of host memory.
#include "fsdp/device/training.h"
#include "fsdp/hpz.h"

namespace vescomm::fsdp::testing {
namespace {

using Codes = std::vector<std::uint8_t>;

// `device`: nullptr for host memory.
Codes codes_of(Engine &engine, const Described &described, gpu_double::Device *device) {
    Codes codes;
    void *stream = device == nullptr ? nullptr : device->stream;
    engine.begin(VESCOMM_FSDP_EVAL);
    for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
        engine.pre_forward(unit, stream);
        for (const std::uint64_t id : described.ids[unit]) {
            const vescomm_fsdp_view_t view = engine.parameter(id);
            const auto *from = static_cast<const std::uint8_t *>(view.data);
            Codes found;
            if (device == nullptr) found.assign(from, from + view.elements);
            else if (view.elements > 0)
                found = device->read(from, static_cast<std::size_t>(view.elements));
            codes.insert(codes.end(), found.begin(), found.end());
        }
        engine.post_forward(unit, stream);
    }
    return codes;
}

std::vector<Codes> train(int ranks, const std::string &preset,
                         const vescomm_fsdp_spec_options_t &options) {
    const bool on_devices = options.memory == VESCOMM_FSDP_DEVICE;
    std::vector<Codes> seen(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Communicator &comm) {
        std::optional<gpu_double::Device> device;
        if (on_devices) device.emplace(comm.rank());
        const Described described = describe(odd_model(), preset, options);
        Engine engine(described.spec, comm);
        fill(engine);
        Codes &own = seen[static_cast<std::size_t>(comm.rank())];
        for (int step = 0; step < 3; ++step) {
            const Codes codes = codes_of(engine, described, device ? &*device : nullptr);
            own.insert(own.end(), codes.begin(), codes.end());
            if (device) step_on_device(engine, comm, described, {}, step, *device);
            else {
                micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
                engine.step();
            }
        }
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
    return seen;
}

void expect_codes_of_the_host(int ranks, const char *preset, vescomm_type_t type,
                              vescomm_type_t gradient_type, int offload) {
    SCOPED_TRACE(::testing::Message() << preset << ", type " << type << ", offload " << offload);
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.compute_type = type;
    options.gradient_type = gradient_type;
    const std::vector<Codes> host = train(ranks, preset, options);
    ASSERT_FALSE(host[0].empty());
    options.offload_to_host = offload;
    EXPECT_EQ(train(ranks, preset, on_device(options)), host);
}

TEST(DeviceF8, CodesAreThoseOfTheHost) {
    for (const vescomm_type_t type : {VESCOMM_F8E4M3, VESCOMM_F8E5M2})
        for (const char *preset : {"zero3", "zero1"})
            expect_codes_of_the_host(3, preset, type, VESCOMM_F32, type == VESCOMM_F8E5M2);
    expect_codes_of_the_host(4, "hsdp:2", VESCOMM_F8E4M3, VESCOMM_F32, 0);
    expect_codes_of_the_host(4, "hpz:2", VESCOMM_F8E5M2, VESCOMM_F32, 0);
    // Gradients in bf16, the default. Their sums would round on the device.
    expect_codes_of_the_host(1, "zero3", VESCOMM_F8E4M3, 0, 0);
}

}  // namespace
}  // namespace vescomm::fsdp::testing
