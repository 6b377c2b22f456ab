// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Training that is saved, and goes on after a load at another number of ranks.
#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/refused.h"
#include "fsdp/training.h"
#include "planner/formats/safetensors_header.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::read_text;
using checkpoint::testing_support::TemporaryFolder;

constexpr double wait_seconds = 60;

vescomm_fsdp_spec_options_t options() {
    return vescomm_fsdp_spec_options_init();
}

void take_steps(Engine &engine, Communicator &comm, const Described &described, int first,
                int count, std::vector<double> &norms) {
    for (int step = first; step < first + count; ++step) {
        micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
        vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
        arguments.max_norm = 1;
        norms.push_back(engine.step(arguments).norm);
    }
}

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string text_of(const std::vector<std::byte> &bytes) {
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

// Trains `steps` steps and saves on the way, after `saved` of them. Returns what rank 0 sees in the
// end.
Outcome train_and_save(int ranks, const std::string &preset, const std::string &folder, int saved,
                       int steps) {
    Outcome outcome;
    run_ranks(ranks, [&](Communicator &comm) {
        const Described described = describe(odd_model(), preset, options());
        Engine engine(described.spec, comm);
        fill(engine);
        std::vector<double> norms;
        take_steps(engine, comm, described, 0, saved, norms);
        Job job = engine.save(folder, bytes_of("state of rank " + std::to_string(comm.rank())));
        // The masters change while the job writes its copy of them.
        take_steps(engine, comm, described, saved, steps - saved, norms);
        job.wait(wait_seconds);
        EXPECT_TRUE(job.test());
        const std::vector<float> parameters = read_all(engine, described.ids);
        if (comm.rank() == 0) outcome = {parameters, norms, engine.counters()};
    });
    return outcome;
}

// Loads and trains from step `saved` to `steps`.
Outcome load_and_train(int ranks, const std::string &preset,
                       const vescomm_fsdp_spec_options_t &chosen, const std::string &folder,
                       int saved, int steps) {
    Outcome outcome;
    run_ranks(ranks, [&](Communicator &comm) {
        const Described described = describe(odd_model(), preset, chosen);
        Engine engine(described.spec, comm);
        engine.load(folder);
        EXPECT_EQ(engine.counters().steps, saved);
        EXPECT_EQ(text_of(engine.extra(0)), "state of rank 0");
        std::vector<double> norms;
        take_steps(engine, comm, described, saved, steps - saved, norms);
        const std::vector<float> parameters = read_all(engine, described.ids);
        if (comm.rank() == 0) outcome = {parameters, norms, engine.counters()};
    });
    return outcome;
}

// Flips a bit in the first save of a folder.
void damage(const std::string &folder) {
    const std::string file = folder + "/save-0000000001/rank-00001.safetensors";
    std::string bytes = read_text(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    checkpoint::testing_support::write_text(file, bytes);
}

TEST(EngineCheckpoint, GoesOnWithTheSameBitsOnAnyNumberOfRanks) {
    TemporaryFolder folder;
    const Outcome whole = train_and_save(5, "zero3", folder.path("c"), 2, 5);
    ASSERT_EQ(whole.norms.size(), 5u);
    const std::vector<double> rest(whole.norms.begin() + 2, whole.norms.end());
    for (const int ranks : {1, 2, 3, 5, 7, 8}) {
        const Outcome loaded = load_and_train(ranks, "zero3", options(), folder.path("c"), 2, 5);
        EXPECT_EQ(loaded.parameters, whole.parameters) << ranks << " ranks";
        EXPECT_EQ(loaded.norms, rest) << ranks << " ranks";
        EXPECT_EQ(loaded.counters.steps, 5);
    }
}

TEST(EngineCheckpoint, GoesOnWithAnyPresetAndPlan) {
    vescomm_planner_options_t planner = vescomm_planner_options_init();
    planner.mode = VESCOMM_PLANNER_UNIFORM;
    vescomm_fsdp_spec_options_t uniform = options();
    uniform.planner = &planner;
    for (const char *saved_with : {"hsdp:2", "hpz:2", "ddp", "zero1"}) {
        TemporaryFolder folder;
        const Outcome whole = train_and_save(4, saved_with, folder.path("c"), 1, 3);
        for (const char *preset : {"zero3", "hsdp:3", "hpz:3", "ddp"})
            EXPECT_EQ(load_and_train(6, preset, options(), folder.path("c"), 1, 3).parameters,
                      whole.parameters)
                << saved_with << " to " << preset;
        EXPECT_EQ(load_and_train(3, "zero3", uniform, folder.path("c"), 1, 3).parameters,
                  whole.parameters);
    }
}

TEST(EngineCheckpoint, KeepsTheBytesOfEveryRank) {
    TemporaryFolder folder;
    train_and_save(3, "zero3", folder.path("c"), 1, 1);
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        const std::string before = sentence_of([&] { engine.extra(0); });
        EXPECT_NE(before.find("no checkpoint was loaded"), std::string::npos) << before;
        engine.load(folder.path("c"));
        for (int rank = 0; rank < 3; ++rank)
            EXPECT_EQ(text_of(engine.extra(rank)), "state of rank " + std::to_string(rank));
        EXPECT_THROW(engine.extra(3), vescomm::Error);
        EXPECT_THROW(engine.extra(-1), vescomm::Error);
    });
}

TEST(EngineCheckpoint, AFailedLoadIsTheSameErrorOnAllRanksAndAnotherOneMayFollow) {
    TemporaryFolder folder;
    const Outcome whole = train_and_save(2, "zero3", folder.path("c"), 1, 2);
    checkpoint::testing_support::fs::copy(folder.path("c"), folder.path("damaged"),
                                          checkpoint::testing_support::fs::copy_options::recursive);
    damage(folder.path("damaged"));
    run_ranks(3, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        const auto error_of = [&](const std::string &path) {
            try {
                engine.load(path);
                return std::string();
            } catch (const vescomm::Error &error) {
                return std::string(error.what());
            }
        };
        EXPECT_NE(error_of(folder.path("nothing")).find("it has no complete save"),
                  std::string::npos);
        const std::string damaged = error_of(folder.path("damaged"));
        EXPECT_NE(damaged.find("the file is damaged, load an older checkpoint"), std::string::npos)
            << damaged;
        EXPECT_EQ(error_of(folder.path("c")), "");
        std::vector<double> norms;
        take_steps(engine, comm, described, 1, 1, norms);
        EXPECT_EQ(read_all(engine, described.ids), whole.parameters);
    });
}

TEST(EngineCheckpoint, AModelThatDiffersNamesTheTensor) {
    TemporaryFolder folder;
    train_and_save(2, "zero3", folder.path("c"), 1, 1);
    run_ranks(2, [&](Communicator &comm) {
        std::vector<UnitModel> other = odd_model();
        other[0].parameters[0].shape = {37, 13};
        const Described described = describe(other);
        Engine engine(described.spec, comm);
        try {
            engine.load(folder.path("c"));
            ADD_FAILURE() << "the shapes differ";
        } catch (const vescomm::Error &error) {
            EXPECT_NE(std::string(error.what())
                          .find("tensor \"embedding.token\", role \"master\" was saved as f32 [37, "
                                "12], and is wanted as f32 [37, 13]"),
                      std::string::npos)
                << error.what();
        }
    });
}

TEST(EngineCheckpoint, AnOlderSaveIsLoadedByItsPath) {
    TemporaryFolder folder;
    run_ranks(3, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        std::vector<double> norms;
        for (int step = 0; step < 2; ++step) {
            take_steps(engine, comm, described, step, 1, norms);
            engine.save(folder.path("c")).wait(wait_seconds);
        }
        const std::vector<float> newest = read_all(engine, described.ids);
        engine.load(folder.path("c/save-0000000001"));
        EXPECT_EQ(engine.counters().steps, 1);
        EXPECT_NE(read_all(engine, described.ids), newest);
        take_steps(engine, comm, described, 1, 1, norms);
        EXPECT_EQ(read_all(engine, described.ids), newest);
        engine.load(folder.path("c/save-0000000002/"));
        EXPECT_EQ(engine.counters().steps, 2);
        try {
            engine.load(folder.path("c/save-0000000003"));
            ADD_FAILURE() << "there are two saves";
        } catch (const vescomm::Error &error) {
            EXPECT_NE(std::string(error.what())
                          .find("its newest complete save is \"save-0000000002\"; load \"" +
                                folder.path("c/save-0000000002") + "\""),
                      std::string::npos)
                << error.what();
        }
    });
}

TEST(EngineCheckpoint, ATensorThatTheModelDoesNotHaveIsAnError) {
    TemporaryFolder folder;
    train_and_save(2, "zero3", folder.path("c"), 1, 1);
    run_ranks(2, [&](Communicator &comm) {
        const auto error_of = [&](const std::vector<UnitModel> &model) {
            const Described described = describe(model);
            Engine engine(described.spec, comm);
            try {
                engine.load(folder.path("c"));
                return std::string();
            } catch (const vescomm::Error &error) {
                EXPECT_EQ(error.status(), VESCOMM_ERROR_INVALID_ARGUMENT);
                return std::string(error.what());
            }
        };
        std::vector<UnitModel> smaller = odd_model();
        const std::string last = smaller.back().name;
        smaller.pop_back();
        EXPECT_NE(error_of(smaller).find("has tensor \"" + last), std::string::npos)
            << error_of(smaller);
        // The states of its optimizer would be lost.
        std::vector<UnitModel> frozen = odd_model();
        frozen[0].parameters[0].flags = VESCOMM_FSDP_FROZEN;
        EXPECT_NE(error_of(frozen).find("has tensor \"embedding.token\", role \"state."),
                  std::string::npos)
            << error_of(frozen);
        EXPECT_EQ(error_of(odd_model()), "");
    });
}

TEST(EngineCheckpoint, AFailedLoadWithinAMicroBatchEndsIt) {
    TemporaryFolder folder;
    train_and_save(2, "zero3", folder.path("c"), 1, 1);
    damage(folder.path("c"));
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        engine.begin(VESCOMM_FSDP_LAST);
        EXPECT_THROW(engine.load(folder.path("c")), vescomm::Error);
        for (const auto &event : std::vector<std::function<void()>>{
                 [&] { engine.pre_forward(0); }, [&] { engine.pre_backward(0); },
                 [&] {
                     vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
                     engine.step(step);
                 }}) {
            try {
                event();
                ADD_FAILURE() << "the values are partly those of the checkpoint";
            } catch (const vescomm::Error &error) {
                EXPECT_NE(std::string(error.what()).find("are partly set or updated"),
                          std::string::npos)
                    << error.what();
            }
        }
    });
}

TEST(EngineCheckpoint, ALoadThatFindsNothingToReadKeepsTheValues) {
    TemporaryFolder folder;
    run_ranks(3, [&](Communicator &comm) {
        std::vector<UnitModel> other = odd_model();
        other[0].parameters[0].name = "another";
        {
            const Described described = describe(other);
            Engine engine(described.spec, comm);
            fill(engine);
            engine.save(folder.path("other")).wait(wait_seconds);
        }
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        std::vector<double> norms;
        take_steps(engine, comm, described, 0, 1, norms);
        engine.save(folder.path("c")).wait(wait_seconds);
        const std::vector<float> before = read_all(engine, described.ids);
        for (const char *path : {"c/save-0000000009", "none/save-0000000001", "other"}) {
            EXPECT_THROW(engine.load(folder.path(path)), vescomm::Error);
            EXPECT_EQ(read_all(engine, described.ids), before) << path;
            EXPECT_EQ(engine.counters().steps, 1);
        }
        engine.save(folder.path("c")).wait(wait_seconds);
        take_steps(engine, comm, described, 1, 1, norms);
    });
}

TEST(EngineCheckpoint, AFolderWithTheNameOfASaveIsRefused) {
    TemporaryFolder folder;
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        // A load would look for it in another folder.
        const std::string sentence =
            sentence_of([&] { engine.save(folder.path("save-0000000007/")).wait(wait_seconds); });
        EXPECT_NE(sentence.find("has the name of a save"), std::string::npos) << sentence;
        engine.save(folder.path("c")).wait(wait_seconds);
    });
}

TEST(EngineCheckpoint, TooManyBytesOfOneRankFailTheSaveOnAllRanks) {
    TemporaryFolder folder;
    run_ranks(3, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        const std::vector<std::byte> bytes(comm.rank() == 1 ? (64 << 20) + 1 : 1);
        Job job = engine.save(folder.path("c"), bytes);
        try {
            job.wait(wait_seconds);
            ADD_FAILURE() << "one rank has too many bytes";
        } catch (const vescomm::Error &error) {
            EXPECT_NE(std::string(error.what()).find("67108865 bytes of the program on rank 1"),
                      std::string::npos)
                << error.what();
        }
        std::vector<double> norms;
        take_steps(engine, comm, described, 0, 1, norms);
        EXPECT_EQ(norms.size(), 1u);
    });
}

// No memory has as many. The others do not wait for the rank.
TEST(EngineCheckpoint, BytesThatNoMemoryHoldsFailTheSaveOnAllRanks) {
    TemporaryFolder folder;
    run_ranks(3, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        const char bytes[] = "random state";
        vescomm_fsdp_extra_t extra = vescomm_fsdp_extra_init();
        extra.data = bytes;
        extra.bytes = comm.rank() == 1 ? SIZE_MAX : sizeof bytes;
        vescomm_job_t *job = nullptr;
        ASSERT_EQ(vescomm_fsdp_save(engine.get(), folder.path("c").c_str(), &extra, &job),
                  VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_EQ(vescomm_job_wait(job, wait_seconds), VESCOMM_ERROR_INVALID_ARGUMENT);
        const std::string why = vescomm_get_last_error();
        EXPECT_NE(why.find("bytes of the program on rank 1"), std::string::npos) << why;
        EXPECT_EQ(vescomm_job_free(job), VESCOMM_OK);
    });
}

TEST(EngineCheckpoint, DifferentFoldersOfALoadAreNamed) {
    TemporaryFolder folder;
    run_ranks(3, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        engine.save(folder.path("c")).wait(wait_seconds);
        try {
            engine.load(folder.path(comm.rank() == 2 ? "another" : "c"));
            ADD_FAILURE() << "the ranks loaded from different folders";
        } catch (const vescomm::Error &error) {
            EXPECT_NE(std::string(error.what()).find("folder differs between ranks 0 and 2"),
                      std::string::npos)
                << error.what();
        }
        engine.reset();
        engine.load(folder.path("c"));
    });
}

TEST(EngineCheckpoint, AnErrorOfASaveIsThatOfTheWaitAndTrainingGoesOn) {
    TemporaryFolder folder;
    checkpoint::testing_support::write_text(folder.path("file"), "no folder");
    run_ranks(3, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        Job job = engine.save(folder.path("file/c"));
        try {
            job.wait(wait_seconds);
            ADD_FAILURE() << "a file is no folder";
        } catch (const vescomm::Error &error) {
            EXPECT_EQ(error.status(), VESCOMM_ERROR_SYSTEM);
            EXPECT_NE(std::string(error.what()).find("Not a directory"), std::string::npos)
                << error.what();
        }
        EXPECT_THROW(job.test(), vescomm::Error);
        std::vector<double> norms;
        take_steps(engine, comm, described, 0, 1, norms);
        EXPECT_EQ(norms.size(), 1u);
    });
}

TEST(EngineCheckpoint, RefusesASaveWhileAUnitIsOpenOnAllRanks) {
    TemporaryFolder folder;
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        try {
            engine.begin();
            // The error of the other rank may arrive here.
            engine.pre_forward(0);
            std::ignore = engine.save(folder.path("c"));
            ADD_FAILURE() << "a unit is open";
        } catch (const vescomm::Error &error) {
            EXPECT_NE(std::string(error.what()).find("unit \"embedding\" is still open"),
                      std::string::npos)
                << error.what();
        }
        engine.reset();
        engine.save(folder.path("c")).wait(wait_seconds);
    });
}

TEST(EngineCheckpoint, RanksThatSaveWithDifferentArgumentsGetAnError) {
    TemporaryFolder folder;
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        const auto expect_mismatch = [&](const std::string &name, int keep,
                                         const std::string &words) {
            try {
                std::ignore = engine.save(folder.path(name), {}, keep);
                ADD_FAILURE() << "the arguments differ";
            } catch (const vescomm::Error &error) {
                const bool other_first = error.status() == VESCOMM_ERROR_ABORTED;
                EXPECT_TRUE(other_first || error.status() == VESCOMM_ERROR_MISMATCH);
                EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
            }
            engine.reset();
        };
        expect_mismatch(std::to_string(comm.rank()), 0,
                        "save: folder differs between ranks 0 and 1");
        expect_mismatch("c", 3 + comm.rank(), "save: keep is 3 on rank 0 and 4 on rank 1");
    });
}

TEST(EngineCheckpoint, ExportsWholeMasters) {
    TemporaryFolder folder;
    const Outcome whole = train_and_save(3, "zero3", folder.path("c"), 2, 2);
    ASSERT_EQ(vescomm_fsdp_export(folder.path("c").c_str(), folder.path("model").c_str(), 0),
              VESCOMM_OK)
        << vescomm_get_last_error();
    const std::string file = read_text(folder.path("model/model-00001-of-00001.safetensors"));
    const auto size = static_cast<std::int64_t>(file.size());
    const auto header = formats::safetensors_header_bytes(file, size, "model");
    std::map<std::string, std::string> tensors;
    for (const auto &entry : formats::parse_safetensors_header(
             file.substr(8, static_cast<std::size_t>(header)), size - 8 - header, "model"))
        tensors[entry.name] = file.substr(static_cast<std::size_t>(8 + header + entry.begin),
                                          static_cast<std::size_t>(entry.end - entry.begin));
    std::size_t at = 0;
    for (const UnitModel &unit : odd_model())
        for (const ParameterSpec &parameter : unit.parameters) {
            const std::string name = unit.name + "." + parameter.name;
            ASSERT_TRUE(tensors.contains(name)) << name;
            const auto count = static_cast<std::size_t>(elements(parameter));
            ASSERT_EQ(tensors[name].size(), count * sizeof(float));
            std::vector<float> values(count);
            std::copy_n(tensors[name].data(), tensors[name].size(),
                        reinterpret_cast<char *>(values.data()));
            const auto first = whole.parameters.begin() + static_cast<std::ptrdiff_t>(at);
            EXPECT_TRUE(std::equal(values.begin(), values.end(), first)) << name;
            at += count;
        }
    EXPECT_EQ(at, whole.parameters.size());
    EXPECT_NE(vescomm_fsdp_export(folder.path("c").c_str(), folder.path("model").c_str(), 0),
              VESCOMM_OK);
    EXPECT_NE(std::string(vescomm_get_last_error()).find("the folder is not empty"),
              std::string::npos);
}

}  // namespace
}  // namespace vescomm::fsdp::testing
