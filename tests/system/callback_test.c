/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Communicators that are created through the caller's own all-gather. It uses sockets that exist
 * before the ranks are forked. Some callbacks fail on all ranks or on one, or return wrong data.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vescomm/vescomm.h>

enum { max_ranks = 4, max_bytes = 1 << 17 };

enum wrong {
    nothing_wrong,
    fails_before, /* closes its sockets and fails, so that the callbacks of the others fail too */
    fails_last, /* fails after it has sent its last data: the others cannot detect it */
    lies /* returns success, and zeros as data */
};

struct star {
    int rank, ranks;
    int sockets[max_ranks]; /* rank 0: one for each peer; others: [0] */
    enum wrong wrong;
    int calls, finished;
    pthread_t thread;
};

static int send_all(int fd, const char *bytes, size_t count) {
    while (count > 0) {
        const ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0) return 1;
        bytes += sent;
        count -= (size_t)sent;
    }
    return 0;
}

static int receive_all(int fd, char *bytes, size_t count) {
    while (count > 0) {
        const ssize_t got = recv(fd, bytes, count, 0);
        if (got <= 0) return 1;
        bytes += got;
        count -= (size_t)got;
    }
    return 0;
}

static void hang_up(struct star *star) {
    int i;
    for (i = 0; i < max_ranks; ++i)
        if (star->sockets[i] >= 0) shutdown(star->sockets[i], SHUT_RDWR);
}

static int exchange(struct star *star, const void *mine, size_t bytes, char *all) {
    int peer;
    memcpy(all + (size_t)star->rank * bytes, mine, bytes);
    if (star->rank != 0)
        return send_all(star->sockets[0], mine, bytes) ||
               receive_all(star->sockets[0], all, bytes * (size_t)star->ranks);
    for (peer = 1; peer < star->ranks; ++peer)
        if (receive_all(star->sockets[peer], all + (size_t)peer * bytes, bytes)) return 1;
    for (peer = 1; peer < star->ranks; ++peer)
        if (send_all(star->sockets[peer], all, bytes * (size_t)star->ranks)) return 1;
    return 0;
}

static int all_gather(void *context, const void *mine, size_t bytes, void *all) {
    struct star *star = context;
    int failed;
    ++star->calls;
    if (star->finished || !pthread_equal(star->thread, pthread_self())) {
        fprintf(stderr, "rank %d: called after the call, or from another thread\n", star->rank);
        _exit(20);
    }
    failed = star->wrong == fails_before || bytes > max_bytes || exchange(star, mine, bytes, all);
    if (failed) hang_up(star);
    if (star->wrong == lies) memset(all, 0, bytes * (size_t)star->ranks);
    return failed || (star->wrong == fails_last && star->calls == 2);
}

static void require(int condition, const char *what, int rank) {
    if (condition) return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, vescomm_get_last_error());
    _exit(21);
}

/* Makes several gathers on the communicator, and verifies them. */
static void use(vescomm_comm_t *comm, const struct star *star) {
    vescomm_comm_info_t info = vescomm_comm_info_init();
    vescomm_layout_t *layout;
    vescomm_buffer_t *buffer;
    vescomm_request_t *gather;
    vescomm_view_t shard, all;
    int64_t counts[max_ranks], i;
    int rank = star->rank, run, k;
    require(vescomm_comm_get_info(comm, &info) == VESCOMM_OK && info.rank == rank &&
                info.ranks == star->ranks && info.nodes == 1 && info.local_ranks == star->ranks,
            "query", rank);
    for (k = 0; k < star->ranks; ++k) counts[k] = 100 * k + 1;
    require(!vescomm_layout_create_from_counts(counts, star->ranks, &layout), "layout", rank);
    require(!vescomm_buffer_create(comm, layout, NULL, &buffer), "buffer", rank);
    require(!vescomm_layout_free(layout), "layout", rank);
    require(!vescomm_all_gather_v_create(comm, buffer, NULL, &gather), "request", rank);
    require(!vescomm_buffer_get_shard(buffer, &shard) && !vescomm_buffer_get_data(buffer, &all),
            "view", rank);
    for (run = 0; run < 3; ++run) {
        float *at = all.data;
        for (i = 0; i < shard.elements; ++i) ((float *)shard.data)[i] = (float)(rank * 10 + run);
        require(!vescomm_request_start(gather, NULL), "start", rank);
        require(!vescomm_request_wait(gather), "wait", rank);
        for (k = 0; k < star->ranks; ++k)
            for (i = 0; i < counts[k]; ++i)
                require(*at++ == (float)(k * 10 + run), "a value", rank);
        require(!vescomm_barrier(comm), "barrier", rank);
    }
    require(!vescomm_request_free(gather) && !vescomm_buffer_free(buffer), "freeing", rank);
}

/* Runs one rank. Exits with minus the status; the error sentence must contain `text`. */
static void play(struct star *star, const char *text) {
    vescomm_comm_options_t options = vescomm_comm_options_init();
    vescomm_comm_t *comm = NULL;
    vescomm_status_t status;
    options.timeout_seconds = text != NULL ? 3 : 100;
    options.node = "the only one";
    star->thread = pthread_self();
    status = vescomm_comm_create_from_all_gather(star->rank, star->ranks, all_gather, star,
                                                 &options, &comm);
    star->finished = 1;
    if (status != VESCOMM_OK) {
        if (comm != NULL || text == NULL || strstr(vescomm_get_last_error(), text) == NULL)
            fprintf(stderr, "rank %d of %d: %s\n", star->rank, star->ranks,
                    vescomm_get_last_error());
        if (comm != NULL) _exit(22);
        _exit(text != NULL && strstr(vescomm_get_last_error(), text) != NULL ? -status : 23);
    }
    use(comm, star);
    require(star->ranks == 1 || star->calls > 0, "the callback was not called", star->rank);
    require(!vescomm_comm_free(comm), "the end", star->rank);
    _exit(0);
}

/* Forks the ranks, `wrong_rank` with the faulty callback, and compares their exit codes. */
static int run(const char *name, int ranks, enum wrong wrong, int wrong_rank, const int *expected,
               const char *text) {
    int pairs[max_ranks][2], rank, failures = 0;
    pid_t children[max_ranks];
    for (rank = 1; rank < ranks; ++rank)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[rank]) != 0) exit((perror("socketpair"), 1));
    for (rank = 0; rank < ranks; ++rank) {
        struct star star;
        int peer;
        children[rank] = fork();
        if (children[rank] != 0) continue;
        memset(&star, 0, sizeof star);
        star.rank = rank;
        star.ranks = ranks;
        star.wrong = rank == wrong_rank ? wrong : nothing_wrong;
        for (peer = 0; peer < max_ranks; ++peer) star.sockets[peer] = -1;
        for (peer = 1; peer < ranks; ++peer) {
            if (rank == 0) star.sockets[peer] = pairs[peer][0];
            else if (rank == peer) star.sockets[0] = pairs[peer][1];
            if (rank != 0) close(pairs[peer][0]);
            if (rank != peer) close(pairs[peer][1]);
        }
        alarm(120); /* ends a rank that hangs */
        play(&star, text);
    }
    for (rank = 1; rank < ranks; ++rank) {
        close(pairs[rank][0]);
        close(pairs[rank][1]);
    }
    for (rank = 0; rank < ranks; ++rank) {
        int status = 0, code;
        waitpid(children[rank], &status, 0);
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        if (code == (expected != NULL ? expected[rank] : 0)) continue;
        fprintf(stderr, "%s: rank %d of %d ended with %d\n", name, rank, ranks, code);
        ++failures;
    }
    printf("%s  %s, %d ranks\n", failures ? "FAIL" : "ok  ", name, ranks);
    fflush(stdout);
    return failures;
}

int main(void) {
    const int system[] = {7, 7, 7}; /* -VESCOMM_ERROR_SYSTEM */
    const int on_one_rank[] = {3, 7, 3}; /* the others: -VESCOMM_ERROR_TIMEOUT */
    int failures = 0;
    failures += run("the caller's all-gather", 1, nothing_wrong, -1, NULL, NULL);
    failures += run("the caller's all-gather", 3, nothing_wrong, -1, NULL, NULL);
    failures += run("the caller's all-gather", 4, nothing_wrong, -1, NULL, NULL);
    failures += run("a callback that fails everywhere", 3, fails_before, 1, system, "all_gather");
    failures += run("a callback that fails at rank 0", 3, fails_before, 0, system, "all_gather");
    failures += run("a callback that fails on one rank", 3, fails_last, 1, on_one_rank, "rank 1");
    failures += run("a callback that returns wrong data", 3, lies, 1, system, "all_gather");
    return failures != 0;
}
