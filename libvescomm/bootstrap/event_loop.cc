// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/event_loop.h"

#include <pthread.h>
#include <signal.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <system_error>
#include <thread>

#include "base/error.h"

namespace vescomm {

struct EventLoop::Machinery {
    // One thread only: asio may leave out its own hand-over between threads.
    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    asio::steady_timer timer{context};
    std::chrono::steady_clock::duration period{};
    std::function<void()> tick;
    std::thread thread;

    void wait() {
        timer.expires_after(period);
        timer.async_wait([this](const std::error_code &error) {
            if (error) return;
            tick();
            wait();
        });
    }
};

EventLoop::EventLoop() : machinery_(std::make_unique<Machinery>()) {}

EventLoop::~EventLoop() {
    stop();
}

asio::io_context &EventLoop::context() {
    return machinery_->context;
}

void EventLoop::post(std::function<void()> function) {
    asio::post(machinery_->context, std::move(function));
}

void EventLoop::every(double seconds, std::function<void()> function) {
    machinery_->period = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds));
    machinery_->tick = std::move(function);
    machinery_->wait();
}

void EventLoop::start(std::function<void(const std::exception &)> caught) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        machinery_->thread =
            std::thread([machinery = machinery_.get(), caught = std::move(caught)] {
                pthread_setname_np(pthread_self(), "vescomm-control");  // at most 15 characters
                while (!machinery->context.stopped()) {
                    try {
                        machinery->context.run();
                    } catch (const std::exception &error) {
                        caught(error);
                    }
                }
            });
    } catch (const std::system_error &error) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw Error(VESCOMM_ERROR_SYSTEM,
                    std::string("cannot start the thread of the control plane: ") + error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void EventLoop::stop() {
    machinery_->context.stop();
    if (machinery_->thread.joinable()) machinery_->thread.join();
}

}  // namespace vescomm
