/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library to preload into a rank. It kills or stops the rank before the n-th of the calls below,
 * so that tests can make ranks die at every step of the setup.
 *
 *     VESCOMM_TEST_DIE_AT=n      die before the n-th call, counted from 1
 *     VESCOMM_TEST_DIE_FROM=all  count from the start of the process; by default, counting starts
 *                                when all ranks have connected and begin to share memory
 *     VESCOMM_TEST_DIE_SIGNAL=s  number of the signal, 9 by default
 */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS /* defines the plain and the 64-bit names of ftruncate and fallocate */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static atomic_int calls;
static atomic_int counting;
static int die_at = -1, die_signal = SIGKILL;

__attribute__((constructor)) static void set_up(void) {
    const char *at = getenv("VESCOMM_TEST_DIE_AT");
    const char *from = getenv("VESCOMM_TEST_DIE_FROM");
    const char *number = getenv("VESCOMM_TEST_DIE_SIGNAL");
    die_at = at != NULL ? atoi(at) : -1;
    counting = from != NULL && strcmp(from, "all") == 0;
    if (number != NULL) die_signal = atoi(number);
}

static void step(void) {
    if (counting && atomic_fetch_add(&calls, 1) + 1 == die_at) kill(getpid(), die_signal);
}

#define PASS_ON(result, name, parameters, arguments)                 \
    result name parameters {                                         \
        static result(*real) parameters;                             \
        if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, #name); \
        BEGIN_##name step();                                         \
        return real arguments;                                       \
    }

#define BEGIN_socket \
    if (domain == AF_UNIX) counting = 1;
#define BEGIN_memfd_create counting = 1;
#define BEGIN_bind
#define BEGIN_listen
#define BEGIN_connect
#define BEGIN_accept
#define BEGIN_accept4
#define BEGIN_sendmsg
#define BEGIN_send
#define BEGIN_recvmsg
#define BEGIN_recv
#define BEGIN_ftruncate
#define BEGIN_ftruncate64
#define BEGIN_fallocate
#define BEGIN_fallocate64
#define BEGIN_eventfd

PASS_ON(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
PASS_ON(int, memfd_create, (const char *name, unsigned int flags), (name, flags))
PASS_ON(int, bind, (int fd, const struct sockaddr *address, socklen_t length),
        (fd, address, length))
PASS_ON(int, listen, (int fd, int backlog), (fd, backlog))
PASS_ON(int, connect, (int fd, const struct sockaddr *address, socklen_t length),
        (fd, address, length))
PASS_ON(int, accept, (int fd, struct sockaddr *address, socklen_t *length), (fd, address, length))
PASS_ON(int, accept4, (int fd, struct sockaddr *address, socklen_t *length, int flags),
        (fd, address, length, flags))
PASS_ON(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
PASS_ON(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
PASS_ON(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
PASS_ON(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
PASS_ON(int, ftruncate, (int fd, off_t size), (fd, size))
PASS_ON(int, ftruncate64, (int fd, off64_t size), (fd, size))
PASS_ON(int, fallocate, (int fd, int mode, off_t offset, off_t size), (fd, mode, offset, size))
PASS_ON(int, fallocate64, (int fd, int mode, off64_t offset, off64_t size),
        (fd, mode, offset, size))
PASS_ON(int, eventfd, (unsigned int value, int flags), (value, flags))
