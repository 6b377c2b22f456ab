// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Settings of optimizers that come from a program: of an older or newer header, not initialised, or
// of a kind of the program.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "fsdp/refused.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

// Bytes at the end of a page. The page behind them cannot be read.
class Guarded {
public:
    explicit Guarded(std::span<const std::byte> bytes) : page_(sysconf(_SC_PAGESIZE)) {
        void *memory = mmap(nullptr, 2 * static_cast<std::size_t>(page_), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
        begin_ = static_cast<std::byte *>(memory);
        mprotect(begin_ + page_, static_cast<std::size_t>(page_), PROT_NONE);
        data_ = begin_ + page_ - bytes.size();
        std::memcpy(data_, bytes.data(), bytes.size());
    }
    ~Guarded() { munmap(begin_, 2 * static_cast<std::size_t>(page_)); }
    Guarded(const Guarded &) = delete;
    Guarded &operator=(const Guarded &) = delete;

    const void *data() const { return data_; }

private:
    long page_;
    std::byte *begin_ = nullptr;
    std::byte *data_ = nullptr;
};

// AdamW settings as a header has them that ends before `bytes`.
Guarded older_adamw(std::uint32_t bytes, double learning_rate = 1e-3) {
    vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
    settings.learning_rate = learning_rate;
    settings.struct_size = bytes;
    return Guarded(std::as_bytes(std::span(&settings, 1)).first(bytes));
}

struct OneMatrix {
    Spec spec;
    std::uint64_t id = spec.add_parameter(spec.add_unit("unit"), {.name = "w", .shape = {10, 3}});

    void add_group(const vescomm_optimizer_kind_t *kind, const void *settings) {
        spec.add_group(std::span(&id, 1), kind, settings);
    }
};

void train_a_step(Engine &engine, const OneMatrix &model) {
    engine.begin(VESCOMM_FSDP_LAST);
    engine.pre_forward(0);
    engine.post_forward(0);
    engine.pre_backward(0);
    const auto view = engine.gradient(model.id).first;
    for (std::int64_t i = 0; i < view.elements; ++i) write(view, i, 1);
    engine.post_backward(0);
    engine.finish_backward();
    engine.step();
}

// A rank with an older header trains as the others. Nothing behind its settings is read.
TEST(Settings, OfAnOlderHeaderHaveTheDefaultsOfTheRest) {
    run_ranks(3, [](Communicator &comm) {
        const vescomm_adamw_settings_t whole = vescomm_adamw_settings_init();
        for (const std::uint32_t bytes : {4, 16, 24, 40}) {
            OneMatrix model;
            const Guarded older = older_adamw(bytes);
            model.add_group(vescomm_optimizer_get_adamw(),
                            comm.rank() == 1 ? older.data() : &whole);
            Engine engine(model.spec, comm);
            train_a_step(engine, model);
            const Guarded other = older_adamw(16, 0.5);
            vescomm_adamw_settings_t changed = whole;
            changed.learning_rate = 0.5;
            engine.set_group(0, comm.rank() == 2 ? other.data() : &changed);
            train_a_step(engine, model);
            // One step of about 1e-3, one of 0.5.
            const auto values = read_all(engine, {{model.id}});
            for (const float x : values) EXPECT_NEAR(x, -0.501, 1e-3);
        }
    });
}

TEST(Settings, OfANewerHeaderAreRefusedIfTheyUseNewerMembers) {
    struct {
        vescomm_sgd_settings_t known = vescomm_sgd_settings_init();
        std::uint64_t newer[2] = {0, 0};
    } settings;
    settings.known.struct_size = sizeof settings;
    OneMatrix().add_group(vescomm_optimizer_get_sgd(), &settings);
    settings.newer[1] = 1;
    const std::string why =
        sentence_of([&] { OneMatrix().add_group(vescomm_optimizer_get_sgd(), &settings); });
    EXPECT_NE(why.find("\"sgd\""), std::string::npos) << why;
    EXPECT_NE(why.find("newer"), std::string::npos) << why;
}

TEST(Settings, WithoutTheirSizeAreRefused) {
    for (const std::uint32_t size : {0u, 1u, 3u, 4097u, 0xffffffffu}) {
        vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
        settings.struct_size = size;
        const std::string why =
            sentence_of([&] { OneMatrix().add_group(vescomm_optimizer_get_adamw(), &settings); });
        EXPECT_NE(why.find("struct_size"), std::string::npos) << why;
        EXPECT_NE(why.find(std::to_string(size)), std::string::npos) << why;
    }
}

TEST(Settings, WithReservedBytesAreRefused) {
    vescomm_adamw_settings_t adamw = vescomm_adamw_settings_init();
    adamw.reserved = 1;
    vescomm_sgd_settings_t sgd = vescomm_sgd_settings_init();
    sgd.reserved = 1;
    for (const auto &why :
         {sentence_of([&] { OneMatrix().add_group(vescomm_optimizer_get_adamw(), &adamw); }),
          sentence_of([&] { OneMatrix().add_group(vescomm_optimizer_get_sgd(), &sgd); })})
        EXPECT_NE(why.find("reserved"), std::string::npos) << why;
}

// A kind of the program, p -= factor * gradient, with settings of its own.
struct OwnSettings {
    std::uint32_t struct_size = sizeof(OwnSettings);
    float factor = 1;
    std::uint64_t ignored = 0;
};

vescomm_optimizer_kind_t own_kind() {
    vescomm_optimizer_kind_t kind = vescomm_optimizer_kind_init();
    kind.settings_bytes = sizeof(OwnSettings);
    kind.name = "own";
    kind.needs = [](void *, const void *, vescomm_optimizer_needs_t *, const char **) { return 0; };
    kind.step = [](void *, const void *settings, const vescomm_optimizer_run_t *run) {
        for (std::int64_t i = 0; i < run->elements; ++i)
            run->master[i] -= static_cast<const OwnSettings *>(settings)->factor * run->gradient[i];
        return 0;
    };
    return kind;
}

TEST(Settings, OfAKindOfTheProgramHaveItsDefaults) {
    for (const bool with_defaults : {false, true})
        run_ranks(2, [&](Communicator &comm) {
            static constexpr OwnSettings defaults{.factor = 4};
            vescomm_optimizer_kind_t kind = own_kind();
            if (with_defaults) kind.default_settings = &defaults;
            OwnSettings settings;
            settings.struct_size = sizeof settings.struct_size;
            OneMatrix model;
            model.add_group(&kind, &settings);
            Engine engine(model.spec, comm);
            train_a_step(engine, model);
            EXPECT_EQ(read_all(engine, {{model.id}}),
                      std::vector<float>(30, with_defaults ? -8.0f : 0.0f));
        });
}

// The program may free the defaults of a kind after vescomm_fsdp_add_group().
TEST(Settings, HaveTheDefaultsThatTheKindHadInItsGroup) {
    run_ranks(2, [](Communicator &comm) {
        OwnSettings defaults{.factor = 4};
        vescomm_optimizer_kind_t kind = own_kind();
        kind.default_settings = &defaults;
        OwnSettings settings;
        OneMatrix model;
        model.add_group(&kind, &settings);
        defaults.factor = 32;
        Engine engine(model.spec, comm);
        settings.struct_size = sizeof settings.struct_size;
        engine.set_group(0, &settings);
        train_a_step(engine, model);
        EXPECT_EQ(read_all(engine, {{model.id}}), std::vector<float>(30, -8.0f));
    });
}

TEST(Settings, ThatDifferBetweenRanksAreRefused) {
    run_ranks(2, [](Communicator &comm) {
        vescomm_optimizer_kind_t kind = own_kind();
        OwnSettings settings;
        settings.ignored = static_cast<std::uint64_t>(comm.rank());
        OneMatrix model;
        model.add_group(&kind, &settings);
        try {
            Engine engine(model.spec, comm);
            ADD_FAILURE() << "the engine was created";
        } catch (const Error &error) {
            EXPECT_EQ(error.status(), VESCOMM_ERROR_MISMATCH) << error.what();
        }
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
