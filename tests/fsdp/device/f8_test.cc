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

TEST(DeviceF8, CodesAreThoseOfTheHost) {
    for (const vescomm_type_t type : {VESCOMM_F8E4M3, VESCOMM_F8E5M2})
        for (const char *preset : {"zero3", "zero1", "hsdp:2", "hpz:2"}) {
            SCOPED_TRACE(::testing::Message() << preset << ", type " << type);
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.compute_type = type;
            options.gradient_type = VESCOMM_F32;
            const int ranks = preset[0] == 'h' ? 4 : 3;
            const std::vector<Codes> host = train(ranks, preset, options);
            ASSERT_FALSE(host[0].empty());
            EXPECT_EQ(train(ranks, preset, on_device(options)), host);
        }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
