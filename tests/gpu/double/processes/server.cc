// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/double/processes/server.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <tuple>

#include "gpu/double/processes/arguments.h"

namespace gpu_double::processes {
namespace {

// Below the addresses that Linux gives to libraries and stacks, above those of programs and heaps.
constexpr std::uint64_t pinned_address = 0x2000'0000'0000;
constexpr std::size_t pinned_capacity = std::size_t{1} << 36;  // only touched pages take memory

[[noreturn]] void fail(const char *what) {
    std::perror(what);
    std::_Exit(70);
}

// Makes a call with the arguments of a message, and adds its results to the answer.
template <auto function, typename... Parameters>
int call_with(int (*)(Parameters...), Reader &call, Writer &answer) {
    // Braces: from the first argument to the last one.
    std::tuple<Argument<Parameters>...> arguments{Argument<Parameters>(call)...};
    return std::apply(
        [&](auto &...argument) {
            const int result = function(argument.value()...);
            (argument.put_result(answer), ...);
            return result;
        },
        arguments);
}

using Handler = int (*)(Reader &call, Writer &answer);

template <auto function>
int handle(Reader &call, Writer &answer) {
    return call_with<function>(function, call, answer);
}

int copy(Reader &call, Writer &answer) {
    const auto bytes = call.get<std::size_t>();
    const auto stream = call.get<cuda::Stream>();
    void *target = call.get<void *>();
    const void *source = call.get<const void *>();
    if (target != nullptr && source != nullptr)
        return cudaMemcpyAsync(target, source, bytes, 0, stream);
    const auto beside = std::make_shared<std::vector<char>>(bytes);
    if (source == nullptr) {
        const std::span<const char> sent = call.get_bytes();
        beside->assign(sent.begin(), sent.end());
        return enqueue(
            stream, "cudaMemcpyAsync", {{target, bytes, true}},
            [=] {
                return [=] {
                    if (bytes > 0) std::memcpy(host_view(target), beside->data(), bytes);
                };
            },
            any_device);
    }
    int error = cudaMemcpyAsync(beside->data(), source, bytes, 0, stream);
    if (error == cuda::success) error = cudaStreamSynchronize(stream);
    answer.put_bytes(beside->data(), bytes);
    return error;
}

int load(Reader &call, Writer &answer) {
    CUlib_st *library = nullptr;
    const int error = cudaLibraryLoadData(&library, call.get_bytes().data(), nullptr, nullptr, 0,
                                          nullptr, nullptr, 0);
    answer.put(library);
    return error;
}

int launch_kernel(Reader &call, Writer &) {
    const auto kernel = call.get<const void *>();
    const auto grid = call.get<cuda::Dim3>(), block = call.get<cuda::Dim3>();
    const auto stream = call.get<cuda::Stream>();
    void *parameters = const_cast<char *>(call.get_bytes().data());
    return cudaLaunchKernel(kernel, grid, block, &parameters, 0, stream);
}

int answer_parameter_bytes(Reader &call, Writer &answer) {
    answer.put(kernel_parameter_bytes(call.get<const void *>()));
    return 0;
}

int shrink(Reader &call, Writer &answer) {
    const auto comm = call.get<nccl::Comm>();
    const std::span<const char> ranks = call.get_bytes();
    std::vector<int> excluded(ranks.size() / sizeof(int));
    std::memcpy(excluded.data(), ranks.data(), ranks.size());
    Argument<nccl::Config *> config(call);
    nccl::Comm child = nullptr;
    const int result = ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()),
                                      &child, config.value(), call.get<int>());
    answer.put(child);
    return result;
}

template <auto function, typename Of>
int text(Reader &call, Writer &answer) {
    const std::string found = function(call.get<Of>());
    answer.put_bytes(found.data(), found.size());
    return 0;
}

// By Function.
constexpr Handler handlers[] = {
#define GPU_DOUBLE_HANDLER(function) handle<&function>,
    GPU_DOUBLE_FORWARDED(GPU_DOUBLE_HANDLER)
#undef GPU_DOUBLE_HANDLER
        copy,
    load,
    launch_kernel,
    text<&cudaGetErrorString, int>,
    shrink,
    text<&ncclGetErrorString, int>,
    text<&ncclGetLastError, nccl::Comm>,
    answer_parameter_bytes,
};
static_assert(std::size(handlers) == static_cast<std::size_t>(Function::the_thread_ends));

SharedMemory *pinned_memory = nullptr;  // of the only server

}  // namespace

SharedMemory::SharedMemory() {
    file_ = memfd_create("gpu_double_pinned", MFD_CLOEXEC);
    void *wanted = reinterpret_cast<void *>(pinned_address);
    if (file_ < 0 || ftruncate(file_, pinned_capacity) != 0 ||
        mmap(wanted, pinned_capacity, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, file_, 0) != wanted)
        fail("gpu double: pinned memory");
    base_ = static_cast<char *>(wanted);
}

void *SharedMemory::allocate(std::size_t bytes) {
    constexpr std::size_t page = 4096;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > pinned_capacity - used_) return nullptr;
    void *made = base_ + used_;
    used_ = std::min((used_ + bytes + page) / page * page, pinned_capacity);
    return made;
}

void SharedMemory::describe(Welcome &welcome) const {
    welcome.server = getpid();
    welcome.pinned_file = file_;
    welcome.pinned = pinned_address;
    welcome.pinned_bytes = pinned_capacity;
}

Server::Server(const std::string &path) {
    pinned_memory = &pinned_;
    set_pinned_allocation([](std::size_t bytes) { return pinned_memory->allocate(bytes); });
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || path.size() >= sizeof address.sun_path ||
        bind(listener, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0 ||
        listen(listener, SOMAXCONN) != 0)
        fail(path.c_str());
    std::thread([=, this] { accept_all(listener); }).detach();
}

void Server::accept_all(int listener) {
    for (;;) {
        const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (socket >= 0) {
            {
                const std::lock_guard<std::mutex> lock(mutex_);
                ++connections_;
            }
            std::thread([=, this] { serve_and_close(socket); }).detach();
        } else if (errno != EINTR && errno != ECONNABORTED) fail("gpu double: accept4()");
    }
}

void Server::serve_and_close(int socket) {
    // The thread of the program may have left a group open, which its end here reports.
    std::thread([=, this] { serve(socket); }).join();
    close(socket);
    const std::lock_guard<std::mutex> lock(mutex_);
    --connections_;
    changed_.notify_all();
}

void Server::wait_for_connections() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(5), [&] { return connections_ == 0; });
}

void Server::serve(int socket) {
    Hello hello;
    Welcome welcome;
    if (!receive_all(socket, &hello, sizeof hello)) return;  // the program was killed
    const bool is_process = hello.process == 0;
    const int number = is_process ? ++processes_ : static_cast<int>(hello.process);
    welcome.process = static_cast<std::uint32_t>(number);
    pinned_.describe(welcome);
    std::tie(welcome.device, welcome.device_bytes) = device_addresses();
    if (!send_all(socket, &welcome, sizeof welcome)) return;
    set_process(number);
    if (!is_process) return serve_thread(socket);
    char nothing = 0;
    receive_all(socket, &nothing, sizeof nothing);
    end_streams(number);
    if (end_communicators(number)) note_death();
}

void Server::serve_thread(int socket) {
    std::uint32_t code = 0;
    std::vector<char> bytes;
    while (receive_message(socket, code, bytes)) {
        if (code == static_cast<std::uint32_t>(Function::the_thread_ends)) return;
        Reader call(std::move(bytes));
        Writer answer;
        const int result = handlers[code](call, answer);
        if (!send_message(socket, static_cast<std::uint32_t>(result), answer)) break;
    }
    leave_group();  // the process has ended
}

}  // namespace gpu_double::processes
