// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A framework that embeds vescomm. It starts its own workers and connects them with its own store;
// the threads, the allocator and the log are its own too.
//
//     c++ -std=c++20 -pthread embed.cpp $(pkg-config --cflags --libs vescomm) -o embed
//     ./embed 3           three workers; no launcher
//     ./embed 3 1         worker 1 fails, and the others end with its reason
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <future>
#include <memory_resource>
#include <thread>
#include <vescomm/vescomm.hpp>

namespace {

// The store of the framework: the parent process returns the messages of all workers to each one.
void serve(const std::vector<int> &workers) {
    for (std::vector<char> one(1 << 16), all;; all.clear()) {
        for (const int worker : workers) {
            const ssize_t bytes = recv(worker, one.data(), one.size(), 0);
            if (bytes <= 0) return;  // this worker has ended
            all.insert(all.end(), one.begin(), one.begin() + bytes);
        }
        for (const int worker : workers) send(worker, all.data(), all.size(), MSG_NOSIGNAL);
    }
}

struct Store {
    int socket, ranks;
};

// A vescomm_all_gather_function_t.
int all_gather(void *context, const void *mine, std::size_t bytes, void *all) {
    const Store &store = *static_cast<Store *>(context);
    const auto sum = static_cast<ssize_t>(bytes * static_cast<std::size_t>(store.ranks));
    if (send(store.socket, mine, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) return 1;
    return recv(store.socket, all, static_cast<std::size_t>(sum), 0) == sum ? 0 : 1;
}

// A vescomm_log_function_t. Any thread may call it.
void log_line(void *context, std::int32_t, const char *line) {
    std::fprintf(stderr, "worker %d: log: %s\n", *static_cast<int *>(context), line);
}

// An allocator of the framework, on registered memory.
class Registered : public std::pmr::memory_resource {
public:
    explicit Registered(vescomm::Communicator &comm) : comm_(comm) {}

private:
    void *do_allocate(std::size_t bytes, std::size_t) override { return comm_.malloc(bytes); }
    void do_deallocate(void *data, std::size_t, std::size_t) override { comm_.mfree(data); }
    bool do_is_equal(const memory_resource &other) const noexcept override {
        return this == &other;
    }
    vescomm::Communicator &comm_;
};

// A thread that makes all calls on one communicator, in the order in which they were submitted.
class Stream {
public:
    ~Stream() {
        submit(nullptr);
        thread_.join();
    }
    std::future<void> submit(std::function<void()> call) {
        const std::lock_guard lock(mutex_);
        calls_.emplace_back(call ? call : [this] { ended_ = true; });
        added_.notify_one();
        return calls_.back().get_future();
    }

private:
    void run() {
        while (!ended_) {
            std::unique_lock lock(mutex_);
            added_.wait(lock, [this] { return !calls_.empty(); });
            std::packaged_task<void()> call = std::move(calls_.front());
            calls_.pop_front();
            lock.unlock();
            call();  // an exception goes into the future
        }
    }
    std::mutex mutex_;
    std::condition_variable added_;
    std::deque<std::packaged_task<void()>> calls_;
    bool ended_ = false;  // used by thread_ only
    std::thread thread_{[this] { run(); }};
};

void step(vescomm::Communicator &comm, Stream &stream, const std::pmr::vector<float> &gradients,
          std::pmr::vector<float> &sums, bool fails) {
    if (fails) throw std::runtime_error("out of training data");
    std::future<void> sum = stream.submit([&] { vescomm::all_reduce(comm, gradients, sums); });
    // The worker computes here, and may fork: a child cannot use the communicator.
    const pid_t child = fork();
    if (child == 0) _exit(vescomm_barrier(comm.get()) == VESCOMM_ERROR_INVALID_ARGUMENT ? 0 : 1);
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        throw std::runtime_error("the call of a child was not refused");
    sum.get();
}

void work(int rank, Store store, bool fails) {
    static int worker;  // the log may be used until the process ends
    worker = rank;
    vescomm_set_log(log_line, &worker);
    vescomm_comm_t *made = nullptr;
    vescomm::check(
        vescomm_comm_create_from_all_gather(rank, store.ranks, all_gather, &store, nullptr, &made));
    vescomm::Communicator comm(made);
    Registered registered(comm);
    std::pmr::monotonic_buffer_resource arena(1 << 20, &registered);
    std::pmr::vector<float> gradients(100'000, static_cast<float>(rank + 1), &arena);
    std::pmr::vector<float> sums(gradients.size(), &arena);
    Stream stream;  // ends before the arrays that its calls use
    try {
        step(comm, stream, gradients, sums, fails);
        stream.submit([&] { comm.finalize(); }).get();
    } catch (const std::exception &error) {
        comm.abort(error.what());  // ends the calls of all workers, and of this one's stream
        throw;
    }
    std::printf("worker %d: sum %g, registered arrays %s\n", rank, sums.back(),
                comm.counters().bytes_registered > 0 ? "used" : "not used");
}

}  // namespace

int main(int count, char **arguments) {
    const int ranks = count > 1 ? std::atoi(arguments[1]) : 3;
    const int failing = count > 2 ? std::atoi(arguments[2]) : -1;
    if (ranks < 1) return std::fprintf(stderr, "usage: embed WORKERS [FAILING]\n"), 2;
    std::vector<int> mine, theirs;
    for (int rank = 0; rank < ranks; ++rank) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) return std::perror("socketpair"), 1;
        mine.push_back(ends[0]);
        theirs.push_back(ends[1]);
    }
    std::vector<pid_t> workers;
    for (int rank = 0; rank < ranks; ++rank) {
        workers.push_back(fork());
        if (workers.back() < 0) return std::perror("fork"), 1;
        if (workers.back() > 0) continue;
        for (int other = 0; other < ranks; ++other) {
            close(mine[other]);
            if (other != rank) close(theirs[other]);
        }
        try {
            work(rank, {theirs[rank], ranks}, rank == failing);
            return 0;
        } catch (const std::exception &error) {
            std::fprintf(stderr, "worker %d: %s\n", rank, error.what());
            return 1;
        }
    }
    for (const int socket : theirs) close(socket);
    serve(mine);
    for (const int socket : mine) close(socket);  // a worker that waits for the store gets an error
    int result = 0;
    for (const pid_t worker : workers) {
        int status = 0;
        if (waitpid(worker, &status, 0) != worker || status != 0) result = 1;
    }
    return result;
}
