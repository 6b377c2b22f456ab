// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Loads of some tensors of a checkpoint into an engine whose other values stay.
#include <cstring>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/refused.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

constexpr std::int64_t states_of_adamw = 2;

// A trained step away from the initial values.
void take_step(Engine &engine, const Described &described, Communicator &comm, int step) {
    micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
    engine.step();
}

class LoadPartial : public ::testing::Test {
protected:
    // Saves odd_model() after a step of 3 ranks.
    void SetUp() override {
        run_ranks(3, [&](Communicator &comm) {
            const Described described = describe(odd_model());
            Engine engine(described.spec, comm);
            fill(engine);
            take_step(engine, described, comm, 0);
            engine.save(path()).wait(60);
            const std::vector<float> all = read_all(engine, described.ids);
            if (comm.rank() == 0) saved_ = all;
        });
    }

    std::string path() const { return folder_.path("c"); }

    // The saved values of the parameters whose unit `of_checkpoint` accepts, else initial ones.
    template <typename OfCheckpoint>
    std::vector<float> expected(const std::vector<UnitModel> &units,
                                OfCheckpoint &&of_checkpoint) const {
        std::vector<float> all;
        std::uint64_t id = 0;
        std::size_t at = 0;
        for (const UnitModel &unit : units)
            for (const ParameterSpec &parameter : unit.parameters) {
                for (std::int64_t i = 0; i < elements(parameter); ++i, ++at)
                    all.push_back(of_checkpoint(unit.name + "." + parameter.name) ? saved_[at]
                                                                                  : initial(id, i));
                ++id;
            }
        return all;
    }

    TemporaryFolder folder_;
    std::vector<float> saved_;
};

vescomm_fsdp_partial_load_t with(bool states, bool strict) {
    vescomm_fsdp_partial_load_t load = vescomm_fsdp_partial_load_init();
    load.states = states ? 1 : 0;
    load.strict = strict ? 1 : 0;
    return load;
}

TEST_F(LoadPartial, LoadsNamedUnitsAndParameters) {
    for (const int ranks : {1, 2, 3, 5})
        for (const char *preset : {"zero3", "ddp"})
            run_ranks(ranks, [&](Communicator &comm) {
                const Described described = describe(odd_model(), preset);
                Engine engine(described.spec, comm);
                fill(engine);
                const auto done = engine.load_partial(path(), {"block.1", "embedding.token"});
                EXPECT_EQ(done.loaded, 7);  // masters of 6 parameters and 1
                EXPECT_EQ(done.missing, 0);
                EXPECT_EQ(done.unexpected, 0);
                EXPECT_EQ(engine.load_report(), "");
                EXPECT_EQ(engine.counters().steps, 0);
                EXPECT_EQ(read_all(engine, described.ids),
                          expected(odd_model(), [](const std::string &name) {
                              return name.starts_with("block.1.") || name == "embedding.token";
                          }));
                engine.check_replicas();
                take_step(engine, described, comm, 0);
            });
}

// "block.1" is no part of "block.10" before a dot.
TEST_F(LoadPartial, EndsNamesAtDots) {
    run_ranks(2, [&](Communicator &comm) {
        std::vector<UnitModel> units = odd_model();
        units.push_back({"block.10", {{.name = "up", .shape = {3}}}});
        const Described described = describe(units);
        Engine engine(described.spec, comm);
        fill(engine);
        EXPECT_EQ(engine.load_partial(path(), {"block.1"}).missing, 0);
        EXPECT_EQ(engine.load_partial(path(), {"block"}).missing, 1);
        EXPECT_EQ(engine.load_report(), "missing master block.10.up\n");
    });
}

TEST_F(LoadPartial, ReportsMissingAndUnexpectedTensors) {
    run_ranks(3, [&](Communicator &comm) {
        std::vector<UnitModel> units = odd_model();
        units.back().name = "other head";
        const Described described = describe(units, "zero1");
        Engine engine(described.spec, comm);
        fill(engine);
        auto done = engine.load_partial(path());
        EXPECT_EQ(done.missing, 1);
        EXPECT_EQ(done.unexpected, 1);
        EXPECT_EQ(engine.load_report(),
                  "missing master other head.out\nunexpected master head.out\n");
        EXPECT_EQ(read_all(engine, described.ids), expected(units, [](const std::string &name) {
                      return !name.starts_with("other head");
                  }));
        done = engine.load_partial(path(), {}, with(true, false));
        EXPECT_EQ(done.missing, 1 + states_of_adamw);
        EXPECT_EQ(done.unexpected, 1 + states_of_adamw);
        EXPECT_NE(engine.load_report().find("missing state.first_moment other head.out\n"),
                  std::string::npos)
            << engine.load_report();
        EXPECT_EQ(engine.counters().steps, 1);
    });
}

// Frozen parameters have no states to load.
TEST_F(LoadPartial, LoadsIntoFrozenParameters) {
    run_ranks(2, [&](Communicator &comm) {
        std::vector<UnitModel> units = odd_model();
        for (ParameterSpec &parameter : units[2].parameters) parameter.flags = VESCOMM_FSDP_FROZEN;
        const Described described = describe(units);
        Engine engine(described.spec, comm);
        fill(engine);
        EXPECT_EQ(engine.load_partial(path(), {"block.1"}).missing, 0);
        EXPECT_EQ(read_all(engine, described.ids), expected(units, [](const std::string &name) {
                      return name.starts_with("block.1.");
                  }));
        const auto done = engine.load_partial(path(), {"block.1"}, with(true, false));
        EXPECT_EQ(done.unexpected, 5 * states_of_adamw);  // one of 6 parameters is empty
    });
}

TEST_F(LoadPartial, OfAllWithStatesGoesOnAsALoad) {
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        std::vector<float> whole;
        {
            Engine engine(described.spec, comm);
            engine.load(path());
            take_step(engine, described, comm, 1);
            whole = read_all(engine, described.ids);
        }
        Engine engine(described.spec, comm);
        fill(engine);
        const auto done = engine.load_partial(path(), {}, with(true, true));
        EXPECT_EQ(done.missing + done.unexpected, 0);
        EXPECT_EQ(engine.counters().steps, 1);
        take_step(engine, described, comm, 1);
        EXPECT_EQ(read_all(engine, described.ids), whole);
    });
}

// A tied parameter has no tensor of its own.
TEST_F(LoadPartial, SelectsThroughATiedParameter) {
    run_ranks(2, [&](Communicator &comm) {
        std::vector<UnitModel> units = odd_model();
        units.push_back({"output", {{.name = "weight", .shape = {37, 12}, .tied_to = 0}}});
        const Described described = describe(units);
        Engine engine(described.spec, comm);
        fill(engine);
        EXPECT_EQ(engine.load_partial(path(), {"output.weight"}).loaded, 1);
        const std::vector<float> all = read_all(engine, described.ids);
        EXPECT_TRUE(std::equal(all.begin(), all.begin() + 37 * 12, saved_.begin()));
    });
}

TEST_F(LoadPartial, ErrorsNameTheTensorAndChangeNothing) {
    run_ranks(3, [&](Communicator &comm) {
        std::vector<UnitModel> units = odd_model();
        units.back().name = "other";
        units[0].parameters[0].shape = {37, 13};
        const Described described = describe(units);
        Engine engine(described.spec, comm);
        fill(engine);
        const std::vector<float> before = read_all(engine, described.ids);
        const auto expect = [&](const std::vector<std::string> &names, bool strict,
                                const std::string &word) {
            const std::string sentence =
                sentence_of([&] { engine.load_partial(path(), names, with(false, strict)); });
            EXPECT_NE(sentence.find(word), std::string::npos) << sentence;
        };
        expect({}, false,
               "tensor \"embedding.token\", role \"master\" was saved as f32 [37, 12], and is "
               "wanted as f32 [37, 13]");
        expect({"block", "blok"}, false, "the name \"blok\" selects neither a parameter");
        expect({"other"}, false, "it has none of the 1 selected tensors of this engine");
        expect({"block", "other"}, true,
               "tensors of this engine are missing in it: 1, such as tensor \"other.out\", role "
               "\"master\"");
        expect({"block", "head"}, true,
               "it has tensors that this engine does not have: 1, such as tensor \"head.out\"");
        EXPECT_EQ(read_all(engine, described.ids), before);
        take_step(engine, described, comm, 0);
        engine.load_partial(path(), {"block"}, with(false, true));
    });
}

// Values that a failed read has partly set are those of no step.
TEST_F(LoadPartial, OfADamagedFileMustBeRepeated) {
    const std::string file = path() + "/save-0000000001/rank-00001.safetensors";
    std::string bytes = checkpoint::testing_support::read_text(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    checkpoint::testing_support::write_text(file, bytes);
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        EXPECT_NE(sentence_of([&] {
                      engine.load_partial(path(), {}, with(true, true));
                  }).find("the file is damaged"),
                  std::string::npos);
        EXPECT_NE(
            sentence_of([&] { engine.load_partial(path(), {}); }).find("partly set or updated"),
            std::string::npos);
        fill(engine);
        take_step(engine, described, comm, 0);
    });
}

TEST_F(LoadPartial, ArgumentsMustBeTheSameOnAllRanks) {
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        EXPECT_THROW(engine.load_partial(path(), {comm.rank() == 0 ? "head" : "block.0"}), Error);
        comm.barrier();
        engine.reset();
    });
}

TEST_F(LoadPartial, RefusesWrongArguments) {
    run_ranks(1, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        vescomm_fsdp_partial_load_t load = vescomm_fsdp_partial_load_init();
        const auto refused = [&] {
            EXPECT_EQ(vescomm_fsdp_load_partial(engine.get(), path().c_str(), &load),
                      VESCOMM_ERROR_INVALID_ARGUMENT);
            load = vescomm_fsdp_partial_load_init();
            return std::string(vescomm_get_last_error());
        };
        load.name_count = 1;
        EXPECT_NE(refused().find("load->names is NULL"), std::string::npos);
        const char *const none[] = {"head", ""};
        load.names = none;
        load.name_count = 2;
        EXPECT_NE(refused().find("load->names[1] is NULL or empty"), std::string::npos);
        load.reserved = 3;
        EXPECT_NE(refused().find("reserved of load is 3"), std::string::npos);
        load.struct_size = 0;
        EXPECT_NE(refused().find("struct_size of load is 0"), std::string::npos);
        EXPECT_EQ(vescomm_fsdp_load_partial(engine.get(), path().c_str(), nullptr),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(vescomm_fsdp_get_load_report(engine.get(), nullptr, 1, nullptr),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        std::size_t size = 0;
        EXPECT_EQ(vescomm_fsdp_get_load_report(engine.get(), nullptr, 0, &size), VESCOMM_OK);
        EXPECT_EQ(size, 1u);
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
