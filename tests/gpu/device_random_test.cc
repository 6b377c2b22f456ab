// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Random programs of calls on device memory leave the values of a model: every method, whole and
// split communicators, arrays and buffers, several streams, graphs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <sstream>

#include "gpu/random_calls.h"
#include "gpu/session_ranks.h"
#include "support/number_in.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using vescomm::testing_support::number_in;

constexpr std::size_t array_elements = 20000;

// Drawn before the ranks begin.
struct Draw {
    explicit Draw(unsigned number) : seed(number) {
        Dice dice(number * 2654435761u + 1);
        ranks = 1 + dice.below(6);
        method = dice.pick<const char *>({nullptr, nullptr, nullptr, "padded", "padded_in_place",
                                          "rooted", "messages", "peer", "peer", "copy_engine"});
        workspace = dice.pick({0, 4096, 1 << 20});
        reproducible = dice.one_in(5);
        several_nodes = dice.one_in(4);
    }
    std::string text() const {
        std::ostringstream text;
        text << "program " << seed << ": " << ranks << " ranks, method "
             << (method == nullptr ? "any" : method) << ", workspace " << workspace
             << (reproducible ? ", reproducible" : "") << (several_nodes ? ", several nodes" : "");
        return text.str();
    }

    unsigned seed;
    int ranks, workspace;
    const char *method;
    bool reproducible, several_nodes;
};

class Program {
public:
    Program(SessionRank &rank, const Draw &draw) : rank_(rank), draw_(draw), dice_(draw.seed) {
        EXPECT_EQ(gpu_double::cudaStreamCreateWithFlags(&second_, 1), 0);
        streams_ = {rank.stream, second_, nullptr};
        stream_ = rank.stream;
    }
    ~Program() { gpu_double::cudaStreamDestroy(second_); }

    void run() {
        auto options = vescomm_gpu_comm_options_init();
        options.method = draw_.method;
        options.workspace_bytes = static_cast<std::uint64_t>(draw_.workspace);
        ASSERT_EQ(rank_.create(&options), VESCOMM_OK) << vescomm_get_last_error();
        add_groups(options);
        add_arrays();
        for (Groups &groups : groups_)
            for (int count = 1 + dice_.below(3); count > 0; --count) add_buffer(groups);
        for (int steps = 5 + dice_.below(25); steps > 0 && !testing::Test::HasFailure(); --steps)
            step();
        check();
        end();
    }

    // Calls that were made, and those of them that were refused.
    int calls = 0, refused = 0;

private:
    // ---- what there is ----

    void add_groups(const vescomm_gpu_comm_options_t &options) {
        Groups &whole = groups_.emplace_back();
        whole.comm = rank_.comm;
        whole.gpu = rank_.gpu;
        whole.ranks = {std::vector<int>(static_cast<std::size_t>(rank_.ranks))};
        std::iota(whole.ranks[0].begin(), whole.ranks[0].end(), 0);
        if (dice_.one_in(2)) return;
        Groups &parts = groups_.emplace_back();
        const int colors = 1 + dice_.below(3);
        const bool reversed = dice_.one_in(2);
        std::vector<std::vector<int>> of(static_cast<std::size_t>(colors));
        for (int k = 0; k < rank_.ranks; ++k) {
            const int rank = reversed ? rank_.ranks - 1 - k : k;
            of[static_cast<std::size_t>(rank % colors)].push_back(rank);
        }
        for (const auto &group : of)
            if (!group.empty()) parts.ranks.push_back(group);
        parts.comm = rank_.split_host(rank_.rank % colors, reversed ? -rank_.rank : rank_.rank);
        ASSERT_EQ(vescomm_gpu_comm_split(rank_.gpu, parts.comm, &options, &parts.gpu), VESCOMM_OK)
            << vescomm_get_last_error();
    }

    Elements undefined_elements(vescomm_type_t type, std::size_t elements) const {
        Elements made;
        made.type = type;
        made.values.assign(static_cast<std::size_t>(rank_.ranks), Values(elements, undefined));
        return made;
    }

    // In memory of cudaMalloc(), and the first one also in memory that is registered.
    void add_arrays() {
        const vescomm_type_t type = value_types[dice_.below(6)];
        for (std::size_t k = 0; k < arrays_.size(); ++k) {
            arrays_[k] = undefined_elements(type, array_elements);
            const std::size_t bytes = array_elements * vescomm_type_get_bytes(type);
            void *data = nullptr;
            if (k == 0 && dice_.one_in(2)) {
                ASSERT_EQ(vescomm_gpu_malloc(rank_.gpu, bytes, &data), VESCOMM_OK)
                    << vescomm_get_last_error();
            } else {
                data = rank_.array<std::uint8_t>(bytes);
            }
            arrays_[k].pieces = {{0, array_elements, static_cast<std::uint8_t *>(data)}};
        }
    }

    void add_buffer(Groups &groups) {
        const bool strided = dice_.one_in(2);
        const vescomm_type_t type = value_types[dice_.below(6)];
        auto buffer = std::make_unique<TestedBuffer>();
        buffer->counts = draw_counts(dice_, groups.largest());
        auto options = vescomm_gpu_buffer_options_init();
        options.type = type;
        options.placement = strided ? VESCOMM_GPU_STRIDED : VESCOMM_GPU_PACKED;
        options.any_cuts = 1;
        const VectorLayout layout = layout_for(groups.group_of(rank_.rank), buffer->counts);
        ASSERT_EQ(vescomm_gpu_buffer_create(groups.gpu, layout, &options, &buffer->handle),
                  VESCOMM_OK)
            << vescomm_get_last_error();
        std::size_t most = 0;
        for (const auto &group : groups.ranks)
            most = std::max(most, layout_for(group, buffer->counts).elements());
        buffer->memory = undefined_elements(type, most);
        for (int shard = 0; shard < static_cast<int>(groups.group_of(rank_.rank).size()); ++shard) {
            vescomm_view_t view = {};
            ASSERT_EQ(vescomm_gpu_buffer_get_shard(buffer->handle, shard, &view), VESCOMM_OK);
            buffer->memory.pieces.push_back(
                {layout.begin(shard), layout.end(shard), static_cast<std::uint8_t *>(view.data)});
        }
        groups.buffers.push_back(std::move(buffer));
    }

    // ---- streams and graphs ----

    // All work so far comes before that of the next stream.
    void move_to(cuda::Stream stream) {
        const bool by_event = dice_.one_in(2) || own_work_;  // all ranks draw
        if (stream == stream_) return;
        if (by_event) {
            cuda::Event event = nullptr;
            EXPECT_EQ(gpu_double::cudaEventCreateWithFlags(&event, 2), 0);
            EXPECT_EQ(gpu_double::cudaEventRecord(event, stream_), 0);
            EXPECT_EQ(gpu_double::cudaStreamWaitEvent(stream, event, 0), 0);
            EXPECT_EQ(gpu_double::cudaEventDestroy(event), 0);
        } else {
            for (Groups &groups : groups_)
                EXPECT_EQ(vescomm_gpu_order_stream(groups.gpu, stream), VESCOMM_OK);
        }
        stream_ = stream;
    }

    // Applies what a call leaves to the model: now, or with each launch of the graph.
    void leaves(std::function<void()> effect) {
        if (capturing_) captured_.push_back(std::move(effect));
        else effect();
    }

    void run_graph() {
        if (stream_ == nullptr) move_to(rank_.stream);
        ASSERT_EQ(cudaStreamBeginCapture(stream_, 1), 0);
        capturing_ = true;
        for (int count = 1 + dice_.below(4); count > 0; --count) call();
        capturing_ = false;
        CUgraph_st *graph = nullptr;
        CUgraphExec_st *exec = nullptr;
        ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), 0);
        ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
        for (int launches = 1 + dice_.below(3); launches > 0; --launches) {
            ASSERT_EQ(cudaGraphLaunch(exec, stream_), 0);
            for (const auto &effect : captured_) effect();
        }
        captured_.clear();
        own_work_ = true;
        check();
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    }

    void check() {
        SCOPED_TRACE(history_);
        for (Groups &groups : groups_)
            ASSERT_EQ(vescomm_gpu_wait(groups.gpu, stream_), VESCOMM_OK)
                << vescomm_get_last_error();
        for (Elements &array : arrays_) expect_values(rank_, array, rank_.rank);
        for (Groups &groups : groups_)
            for (auto &buffer : groups.buffers) expect_values(rank_, buffer->memory, rank_.rank);
    }

    // ---- calls ----

    void step() {
        move_to(streams_[static_cast<std::size_t>(dice_.below(3))]);
        switch (dice_.below(12)) {
            case 0:
                return run_graph();
            case 1:
                return check();
            case 2:
                return renew_a_buffer();
            default:
                return call();
        }
    }

    Groups &any_groups() {
        return groups_[static_cast<std::size_t>(dice_.below(static_cast<int>(groups_.size())))];
    }

    void call() {
        Groups &groups = any_groups();
        switch (dice_.below(9)) {
            case 0:
            case 1:
                return gather_buffers(groups);
            case 2:
            case 3:
                return reduce_buffers(groups);
            case 4:
                return gather_array(groups);
            case 5:
                return reduce_array(groups);
            case 6:
                return all_reduce(groups);
            case 7:
                return broadcast(groups);
            default:
                return exchange(groups);
        }
    }

    void fill(Elements &memory, Fill with) {
        launch_fill(memory, with, rank_.rank, stream_);
        own_work_ = true;
        leaves([&memory, with] {
            for (std::size_t rank = 0; rank < memory.values.size(); ++rank)
                for (std::size_t i = 0; i < memory.values[rank].size(); ++i)
                    memory.values[rank][i] = with(static_cast<int>(rank), i);
        });
    }
    void fill(Elements &memory) { fill(memory, {++fills_}); }

    // Returns true if the call is on the stream.
    bool made(const std::string &name, vescomm_status_t status) {
        history_ += (capturing_ ? "captured " : "") + name +
                    (status == VESCOMM_OK ? "\n" : " is refused\n");
        ++calls;
        if (status == VESCOMM_ERROR_UNSUPPORTED) ++refused;
        else EXPECT_EQ(status, VESCOMM_OK) << vescomm_get_last_error();
        return status == VESCOMM_OK;
    }

    vescomm_op_t any_op(const Groups &groups, bool floats) {
        const vescomm_op_t op = dice_.pick(
            {VESCOMM_SUM, VESCOMM_SUM, VESCOMM_MIN, VESCOMM_MAX, VESCOMM_PROD, VESCOMM_AVERAGE});
        return op == VESCOMM_AVERAGE && !(floats && groups.can_average()) ? VESCOMM_SUM : op;
    }
    // Some buffers, each once, in any order.
    std::vector<TestedBuffer *> some_buffers(Groups &groups) {
        std::vector<TestedBuffer *> all, some;
        for (auto &buffer : groups.buffers) all.push_back(buffer.get());
        for (int count = 1 + dice_.below(static_cast<int>(all.size())); count > 0; --count) {
            const auto at = all.begin() + dice_.below(static_cast<int>(all.size()));
            some.push_back(*at);
            all.erase(at);
        }
        return some;
    }
    static std::vector<vescomm_gpu_buffer_t *> handles_of(const std::vector<TestedBuffer *> &some) {
        std::vector<vescomm_gpu_buffer_t *> handles;
        for (const TestedBuffer *one : some) handles.push_back(one->handle);
        return handles;
    }

    // On the communicator of this rank.
    std::size_t elements_of(const Groups &groups, const std::vector<TestedBuffer *> &some) const {
        std::size_t elements = 0;
        for (const TestedBuffer *one : some)
            elements += layout_for(groups.group_of(rank_.rank), one->counts).elements();
        return elements;
    }

    void gather_buffers(Groups &groups) {
        const auto some = some_buffers(groups);
        for (TestedBuffer *one : some)
            if (dice_.one_in(2)) fill(one->memory);
        const auto handles = handles_of(some);
        if (!made("all_gather_v of buffers",
                  vescomm_gpu_buffer_all_gather_v(handles.data(), handles.size(), stream_)))
            return;
        own_work_ = own_work_ && elements_of(groups, some) == 0;
        for (TestedBuffer *one : some)
            leaves([one, all = groups.ranks] {
                for (const auto &group : all)
                    model_gather(one->memory, 0, one->memory, 0, group,
                                 layout_for(group, one->counts), true);
            });
    }

    void reduce_buffers(Groups &groups) {
        const auto some = some_buffers(groups);
        bool floats = true;
        for (const TestedBuffer *one : some) floats = floats && is_float(one->memory.type);
        const vescomm_op_t op = any_op(groups, floats);
        for (TestedBuffer *one : some) fill(one->memory, fill_for(op, ++fills_));
        const auto handles = handles_of(some);
        if (!made("reduce_scatter_v of buffers",
                  vescomm_gpu_buffer_reduce_scatter_v(handles.data(), handles.size(), op, stream_)))
            return;
        own_work_ = own_work_ && elements_of(groups, some) == 0;
        for (TestedBuffer *one : some)
            leaves([one, op, all = groups.ranks] {
                for (const auto &group : all)
                    model_reduce_scatter(one->memory, 0, one->memory, 0, group,
                                         layout_for(group, one->counts), op);
            });
    }

    void renew_a_buffer() {
        Groups &groups = any_groups();
        auto &all = groups.buffers;
        const auto at = all.begin() + dice_.below(static_cast<int>(all.size()));
        ASSERT_EQ(vescomm_gpu_buffer_free((*at)->handle), VESCOMM_OK) << vescomm_get_last_error();
        all.erase(at);
        add_buffer(groups);
    }

    // An array and another one, or the same one.
    std::pair<Elements *, Elements *> two_arrays() {
        const int first = dice_.below(3);
        const int second = dice_.one_in(2) ? first : (first + 1 + dice_.below(2)) % 3;
        return {&arrays_[static_cast<std::size_t>(first)],
                &arrays_[static_cast<std::size_t>(second)]};
    }
    std::size_t place() { return static_cast<std::size_t>(dice_.below(300)); }

    void gather_array(Groups &groups) {
        const auto [from, to] = two_arrays();
        const bool in_place = from == to;
        const auto counts = draw_counts(dice_, groups.largest());
        const std::size_t source = place(), target = place();
        if (dice_.one_in(2)) fill(*from);
        const VectorLayout layout = layout_for(groups.group_of(rank_.rank), counts);
        if (!made("all_gather_v", vescomm_gpu_all_gather_v(groups.gpu, layout, to->type,
                                                           in_place ? nullptr : from->at(source),
                                                           to->at(target), stream_)))
            return;
        own_work_ = own_work_ && layout.elements() == 0;
        leaves([=, from = from, to = to, all = groups.ranks] {
            for (const auto &group : all)
                model_gather(*from, source, *to, target, group, layout_for(group, counts),
                             in_place);
        });
    }

    void reduce_array(Groups &groups) {
        const auto [from, to] = two_arrays();
        const bool in_place = from == to;
        const auto counts = draw_counts(dice_, groups.largest());
        const std::size_t source = place(), target = place();
        const vescomm_op_t op = any_op(groups, is_float(from->type));
        fill(*from, fill_for(op, ++fills_));
        const VectorLayout layout = layout_for(groups.group_of(rank_.rank), counts);
        if (!made("reduce_scatter_v",
                  vescomm_gpu_reduce_scatter_v(groups.gpu, layout, from->type, op, from->at(source),
                                               in_place ? nullptr : to->at(target), stream_)))
            return;
        own_work_ = own_work_ && layout.elements() == 0;
        leaves([=, from = from, to = to, all = groups.ranks] {
            for (const auto &group : all)
                model_reduce_scatter(*from, source, *to, target, group, layout_for(group, counts),
                                     op);
        });
    }

    void all_reduce(Groups &groups) {
        const auto [from, to] = two_arrays();
        const std::size_t begin = place(), count = static_cast<std::size_t>(draw_elements(dice_));
        const vescomm_op_t op = any_op(groups, is_float(from->type));
        fill(*from, fill_for(op, ++fills_));
        if (!made("all_reduce", vescomm_gpu_all_reduce(groups.gpu, from->at(begin), to->at(begin),
                                                       static_cast<std::int64_t>(count), from->type,
                                                       op, stream_)))
            return;
        own_work_ = own_work_ && count == 0;
        leaves([=, from = from, to = to, all = groups.ranks] {
            for (const auto &group : all) model_all_reduce(*from, *to, begin, count, group, op);
        });
    }

    void broadcast(Groups &groups) {
        Elements &array = *two_arrays().first;
        const std::size_t begin = place(), count = static_cast<std::size_t>(draw_elements(dice_));
        const int draw = dice_.below(6);
        if (dice_.one_in(2)) fill(array);
        const auto root_of = [draw](const std::vector<int> &group) {
            return draw % static_cast<int>(group.size());
        };
        if (!made("broadcast", vescomm_gpu_broadcast(
                                   groups.gpu, array.at(begin), static_cast<std::int64_t>(count),
                                   array.type, root_of(groups.group_of(rank_.rank)), stream_)))
            return;
        own_work_ = own_work_ && count == 0;
        leaves([=, &array, all = groups.ranks] {
            for (const auto &group : all) {
                const Values root = array.of(group[static_cast<std::size_t>(root_of(group))]);
                for (const int rank : group)
                    for (std::size_t i = begin; i < begin + count; ++i) array.of(rank)[i] = root[i];
            }
        });
    }

    // Blocks one after another, with gaps, from the source's beginning and the target's.
    void exchange(Groups &groups) {
        const int first = dice_.below(3);
        Elements &from = arrays_[static_cast<std::size_t>(first)];
        Elements &to = arrays_[static_cast<std::size_t>((first + 1) % 3)];
        const std::size_t members = static_cast<std::size_t>(groups.largest());
        const std::int64_t gap = dice_.below(3);
        std::vector<std::vector<std::int64_t>> sent;  // [from][to]
        for (std::size_t k = 0; k < members; ++k)
            sent.push_back(draw_counts(dice_, groups.largest()));
        if (dice_.one_in(2)) fill(from);
        const auto received = [sent](std::size_t by) {
            std::vector<std::int64_t> counts;
            for (const auto &of : sent) counts.push_back(of[by]);
            return counts;
        };
        const auto offsets = [gap](const std::vector<std::int64_t> &counts) {
            std::vector<std::int64_t> result;
            std::int64_t at = 0;
            for (const std::int64_t count : counts) {
                result.push_back(at);
                at += count + gap;
            }
            return result;
        };
        const auto &group = groups.group_of(rank_.rank);
        const std::size_t own = static_cast<std::size_t>(
            std::find(group.begin(), group.end(), rank_.rank) - group.begin());
        const auto into = offsets(received(own)), out = offsets(sent[own]);
        const bool packed = gap == 0 && dice_.one_in(2);
        if (!made("all_to_all_v", vescomm_gpu_all_to_all_v(
                                      groups.gpu, from.at(0), sent[own].data(),
                                      packed ? nullptr : out.data(), to.at(0), received(own).data(),
                                      packed ? nullptr : into.data(), from.type, stream_)))
            return;
        own_work_ = true;  // there may be nothing to exchange
        leaves([=, &from, &to, all = groups.ranks] {
            for (const auto &of : all)
                for (std::size_t a = 0; a < of.size(); ++a)
                    for (std::size_t b = 0; b < of.size(); ++b) {
                        const auto source = offsets(sent[a])[b], target = offsets(received(b))[a];
                        const Values &its = from.of(of[a]);
                        std::copy(its.begin() + source, its.begin() + source + sent[a][b],
                                  to.of(of[b]).begin() + target);
                    }
        });
    }

    void end() {
        for (Groups &groups : groups_)
            for (auto &buffer : groups.buffers)
                EXPECT_EQ(vescomm_gpu_buffer_free(buffer->handle), VESCOMM_OK);
        if (groups_.size() < 2) return;
        EXPECT_EQ(vescomm_gpu_comm_free(groups_[1].gpu), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(groups_[1].comm), VESCOMM_OK);
    }

    SessionRank &rank_;
    const Draw &draw_;
    Dice dice_;
    cuda::Stream second_ = nullptr, stream_ = nullptr;
    std::array<cuda::Stream, 3> streams_{};
    std::deque<Groups> groups_;
    std::array<Elements, 3> arrays_;
    bool own_work_ = false;  // since the last call with elements, on the stream
    bool capturing_ = false;
    std::vector<std::function<void()>> captured_;
    std::string history_;  // of calls
    unsigned fills_ = 0;
};

TEST(DeviceRandom, CallsLeaveTheValuesOfTheModel) {
    std::atomic<int> calls = 0, refused = 0;
    const int first = number_in("VESCOMM_TEST_FIRST_SEED", 0);
    const int programs = number_in("VESCOMM_TEST_ROUNDS", 100);
    for (int number = first; number < first + programs && !HasFailure(); ++number) {
        const Draw draw(static_cast<unsigned>(number));
        SCOPED_TRACE(draw.text());
        setenv("VESCOMM_REPRODUCIBLE", draw.reproducible ? "yes" : "no", 1);
        std::vector<int> node;
        for (int rank = 0; draw.several_nodes && rank < draw.ranks; ++rank)
            node.push_back(rank % 2);
        run_session(
            draw.ranks,
            [&](SessionRank &rank) {
                SCOPED_TRACE(draw.text());
                Program program(rank, draw);
                program.run();
                calls += program.calls;
                refused += program.refused;
            },
            60, node);
        EXPECT_EQ(gpu_double::take_violations(), "");
        EXPECT_EQ(gpu_double::live_communicators(), 0);
    }
    unsetenv("VESCOMM_REPRODUCIBLE");
    RecordProperty("calls", calls);
    RecordProperty("refused", refused);
    EXPECT_LT(refused, calls / 2);
}

}  // namespace
}  // namespace vescomm::internal
