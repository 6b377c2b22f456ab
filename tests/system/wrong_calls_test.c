/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Invalid calls. Each must return the right status and an error sentence with the offending values
 * and the remedy.
 */
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <vescomm/vescomm.h>

static int failures;

/* Checks the status, and that the error sentence contains all texts. The last text is NULL. */
static void expect(int line, vescomm_status_t is, vescomm_status_t should, ...) {
    va_list texts;
    const char *text;
    const char *sentence = vescomm_get_last_error();
    int wrong = is != should;
    va_start(texts, should);
    while ((text = va_arg(texts, const char *)) != NULL) {
        if (strstr(sentence, text) != NULL) continue;
        printf("FAIL  line %d: the sentence lacks \"%s\": %s\n", line, text, sentence);
        ++failures;
    }
    va_end(texts);
    if (!wrong) return;
    printf("FAIL  line %d: %s instead of %s: %s\n", line, vescomm_status_get_name(is),
           vescomm_status_get_name(should), sentence);
    ++failures;
}

#define REFUSED(call, ...) \
    expect(__LINE__, (call), VESCOMM_ERROR_INVALID_ARGUMENT, __VA_ARGS__, (char *)NULL)
#define UNSUPPORTED(call, ...) \
    expect(__LINE__, (call), VESCOMM_ERROR_UNSUPPORTED, __VA_ARGS__, (char *)NULL)
#define FINE(call) expect(__LINE__, (call), VESCOMM_OK, (char *)NULL)

static vescomm_comm_t *alone(void) {
    vescomm_comm_t *comm = NULL;
    FINE(vescomm_comm_create(0, 1, NULL, NULL, NULL, &comm));
    return comm;
}

static vescomm_layout_t *layout_of(int ranks) {
    int64_t counts[8] = {5, 6, 7, 8, 9, 10, 11, 12};
    vescomm_layout_t *layout = NULL;
    FINE(vescomm_layout_create_from_counts(counts, ranks, &layout));
    return layout;
}

static void communicators(void) {
    vescomm_comm_options_t options = vescomm_comm_options_init();
    vescomm_comm_info_t info = vescomm_comm_info_init();
    vescomm_comm_counters_t counters = vescomm_comm_counters_init();
    const vescomm_trace_argument_t nameless = {NULL, "text", 0};
    vescomm_comm_t *comm = (vescomm_comm_t *)&options;
    vescomm_comm_t *untouched = comm;
    REFUSED(vescomm_comm_create(0, 1, NULL, NULL, NULL, NULL), "vescomm_comm_create",
            "comm is NULL");
    REFUSED(vescomm_comm_create(3, 3, "127.0.0.1:1", "s", NULL, &comm), "rank is 3", "ranks 3",
            "from 0 to");
    REFUSED(vescomm_comm_create(-1, 2, "127.0.0.1:1", "s", NULL, &comm), "rank is -1");
    REFUSED(vescomm_comm_create(0, 0, "127.0.0.1:1", "s", NULL, &comm), "ranks 0", "at least 1");
    REFUSED(vescomm_comm_create(0, 2, NULL, "s", NULL, &comm), "address is NULL", "must be given");
    REFUSED(vescomm_comm_create(0, 2, "127.0.0.1:1", NULL, NULL, &comm), "secret is NULL");
    REFUSED(vescomm_comm_create(0, 2, "127.0.0.1:1", "", NULL, &comm), "secret is empty", "give");
    REFUSED(vescomm_comm_create(0, 2, "no port", "s", NULL, &comm), "no port", "host:port");
    REFUSED(vescomm_comm_create(0, 2, "127.0.0.1:99999", "s", NULL, &comm), "99999");
    options.struct_size = 3;
    REFUSED(vescomm_comm_create(0, 1, NULL, NULL, &options, &comm), "struct_size", "is 3",
            "options", "_init()");
    options.struct_size = 1u << 20;
    REFUSED(vescomm_comm_create(0, 1, NULL, NULL, &options, &comm), "struct_size", "1048576");
    options = vescomm_comm_options_init();
    options.timeout_seconds = -2.5;
    REFUSED(vescomm_comm_create(0, 1, NULL, NULL, &options, &comm), "timeout_seconds is -2.5",
            "above 0");
    options.timeout_seconds = NAN;
    REFUSED(vescomm_comm_create(0, 1, NULL, NULL, &options, &comm), "timeout_seconds is", "nan",
            "above 0");
    REFUSED(vescomm_comm_create_from_all_gather(0, 1, NULL, NULL, NULL, &comm),
            "all_gather is NULL");
    REFUSED(vescomm_comm_create_from_environment(NULL, NULL), "comm is NULL");
    if (comm != untouched) {
        printf("FAIL  a failed call has set its output\n");
        ++failures;
    }
    REFUSED(vescomm_comm_get_info(NULL, &info), "comm is NULL");
    REFUSED(vescomm_barrier(NULL), "vescomm_barrier", "comm is NULL");
    REFUSED(vescomm_comm_progress(NULL), "comm is NULL");
    REFUSED(vescomm_comm_abort(NULL, "why"), "comm is NULL");
    REFUSED(vescomm_trace_start(NULL, 0), "comm is NULL");
    FINE(vescomm_comm_free(NULL));
    comm = alone();
    REFUSED(vescomm_comm_get_info(comm, NULL), "info is NULL");
    REFUSED(vescomm_comm_get_counters(comm, NULL), "counters is NULL");
    info.struct_size = 0;
    REFUSED(vescomm_comm_get_info(comm, &info), "struct_size", "is 0");
    counters.struct_size = 2;
    REFUSED(vescomm_comm_get_counters(comm, &counters), "struct_size", "is 2");
    REFUSED(vescomm_trace_add_span(comm, NULL, "t", 0, 1), "name is NULL");
    REFUSED(vescomm_trace_add_span(comm, "n", "t", 2, 1), "\"n\"", "2.0", "1.0", "earlier");
    REFUSED(vescomm_trace_add_span_with(comm, "n", NULL, 0, 1, NULL, 0), "track is NULL");
    REFUSED(vescomm_trace_add_span_with(comm, "n", "t", 2, 1, NULL, 0), "\"n\"", "earlier");
    REFUSED(vescomm_trace_add_span_with(comm, "n", "t", 0, 1, NULL, 1), "arguments is NULL");
    REFUSED(vescomm_trace_add_span_with(comm, "n", "t", 0, 1, &nameless, 1),
            "the name of an argument is NULL");
    FINE(vescomm_trace_add_span_with(comm, "n", "t", 0, 1, NULL, 0));
    REFUSED(vescomm_trace_write(comm, NULL), "path is NULL");
    expect(__LINE__, vescomm_trace_write(comm, "/no/such/folder/trace"), VESCOMM_ERROR_SYSTEM,
           "/no/such/folder/trace", (char *)NULL);
    FINE(vescomm_comm_free(comm));
}

static void layouts(void) {
    int64_t cuts[] = {0, 6, 10}, wrong_cuts[] = {0, 7, 10}, falling[] = {0, 8, 5},
            negative[] = {4, -1};
    int64_t shape[] = {2, 5};
    int64_t begin, end;
    size_t index = 7, count;
    vescomm_tensor_t tensor = vescomm_tensor_init();
    vescomm_layout_info_t info = vescomm_layout_info_init();
    vescomm_layout_t *layout = NULL;
    tensor.name = "w1";
    tensor.dimensions = 2;
    tensor.shape = shape;
    tensor.block = 2;
    REFUSED(vescomm_layout_create(NULL, 1, 10, cuts, 2, &layout), "tensors");
    REFUSED(vescomm_layout_create(&tensor, 1, 10, NULL, 2, &layout), "cuts");
    REFUSED(vescomm_layout_create(&tensor, 1, 10, wrong_cuts, 2, &layout), "\"w1\"", "7", "block");
    REFUSED(vescomm_layout_create(&tensor, 1, 5, falling, 2, &layout), "8", "5");
    REFUSED(vescomm_layout_create(&tensor, 1, 10, cuts, 0, &layout), "ranks", "0");
    REFUSED(vescomm_layout_create(&tensor, 1, 9, cuts, 2, &layout), "9", "10");
    tensor.name = NULL;
    REFUSED(vescomm_layout_create(&tensor, 1, 10, cuts, 2, &layout), "name");
    tensor.name = "w1";
    tensor.struct_size = 1;
    REFUSED(vescomm_layout_create(&tensor, 1, 10, cuts, 2, &layout), "struct_size", "is 1");
    tensor = vescomm_tensor_init();
    REFUSED(vescomm_layout_create_from_counts(NULL, 2, &layout), "counts");
    REFUSED(vescomm_layout_create_from_counts(negative, 2, &layout), "-1");
    REFUSED(vescomm_layout_create_from_counts(cuts, -4, &layout), "ranks", "-4");
    layout = layout_of(3);
    REFUSED(vescomm_layout_get_shard(layout, 3, &begin, &end), "rank 3", "[0, 3)");
    REFUSED(vescomm_layout_get_shard(layout, -1, &begin, &end), "rank -1");
    REFUSED(vescomm_layout_get_shard(layout, 0, NULL, &end), "begin is NULL");
    REFUSED(vescomm_layout_get_tensor(layout, 5, &tensor), "5", "1");
    REFUSED(vescomm_layout_find_tensor(layout, "norm", &index), "norm");
    REFUSED(vescomm_layout_get_pieces(layout, 0, NULL, 4, &count), "pieces is NULL");
    info.struct_size = 0;
    REFUSED(vescomm_layout_get_info(layout, &info), "struct_size", "is 0");
    if (index != 7) {
        printf("FAIL  a failed find has set its output\n");
        ++failures;
    }
    FINE(vescomm_layout_free(layout));
    FINE(vescomm_layout_free(NULL));
}

static void buffers(void) {
    vescomm_comm_t *comm = alone(), *other = alone();
    vescomm_layout_t *two = layout_of(2), *one = layout_of(1);
    vescomm_memory_options_t memory_options = vescomm_memory_options_init();
    vescomm_buffer_options_t options = vescomm_buffer_options_init();
    vescomm_memory_t *memory = NULL;
    vescomm_buffer_t *buffer = NULL;
    vescomm_view_t view;
    void *data;
    memory_options.bytes = 64;
    REFUSED(vescomm_memory_create(comm, NULL, &memory), "options is NULL");
    memory_options.sharing = 9;
    REFUSED(vescomm_memory_create(comm, &memory_options, &memory), "no sharing 9",
            "VESCOMM_PER_NODE");
    memory_options.sharing = VESCOMM_PER_RANK;
    memory_options.kind = 4;
    UNSUPPORTED(vescomm_memory_create(comm, &memory_options, &memory), "kind 4", "VESCOMM_HOST");
    memory_options.kind = VESCOMM_HOST;
    FINE(vescomm_memory_create(comm, &memory_options, &memory));
    REFUSED(vescomm_memory_get_data(NULL, &data, NULL), "memory is NULL");

    options.name = "weights";
    REFUSED(vescomm_buffer_create(comm, NULL, NULL, &buffer), "layout is NULL");
    REFUSED(vescomm_buffer_create(comm, two, &options, &buffer), "\"weights\"", "2 shards",
            "1 rank", "plan it");
    options.type = 77;
    REFUSED(vescomm_buffer_create(comm, one, &options, &buffer), "\"weights\"", "77");
    options.type = VESCOMM_F32;
    options.memory = memory;
    options.offset_bytes = 32;
    REFUSED(vescomm_buffer_create(comm, one, &options, &buffer), "offset_bytes is 32",
            "multiple of 64");
    options.offset_bytes = 64;
    REFUSED(vescomm_buffer_create(comm, one, &options, &buffer), "20 bytes", "at 64",
            "memory of 64 bytes");
    options.offset_bytes = 0;
    REFUSED(vescomm_buffer_create(other, one, &options, &buffer), "another communicator");
    options.memory = NULL;
    FINE(vescomm_buffer_create(comm, one, &options, &buffer));
    REFUSED(vescomm_buffer_get_data(buffer, NULL), "view is NULL");
    REFUSED(vescomm_buffer_get_tensor(buffer, 3, &view), "index is 3", "\"weights\"", "1 tensor");
    REFUSED(vescomm_buffer_release(NULL), "buffer is NULL");
    FINE(vescomm_buffer_free(buffer));
    FINE(vescomm_buffer_free(NULL));
    FINE(vescomm_memory_free(memory));
    FINE(vescomm_layout_free(one));
    FINE(vescomm_layout_free(two));
    FINE(vescomm_comm_free(comm));
    FINE(vescomm_comm_free(other));
}

static void requests(void) {
    vescomm_comm_t *comm = alone(), *other = alone();
    vescomm_layout_t *layout = layout_of(1);
    vescomm_buffer_options_t buffer_options = vescomm_buffer_options_init();
    vescomm_request_options_t options = vescomm_request_options_init();
    vescomm_buffer_t *own, *slab, *bytes;
    vescomm_request_t *request = NULL;
    float output[8];
    buffer_options.name = "weights";
    FINE(vescomm_buffer_create(comm, layout, &buffer_options, &own));
    buffer_options.sharing = VESCOMM_PER_NODE;
    FINE(vescomm_buffer_create(comm, layout, &buffer_options, &slab));
    buffer_options = vescomm_buffer_options_init();
    buffer_options.type = VESCOMM_U8;
    buffer_options.name = "codes";
    FINE(vescomm_buffer_create(comm, layout, &buffer_options, &bytes));

    REFUSED(vescomm_all_gather_v_create(comm, NULL, NULL, &request), "buffer is NULL");
    REFUSED(vescomm_all_gather_v_create(comm, own, NULL, NULL), "request is NULL");
    REFUSED(vescomm_all_gather_v_create(other, own, NULL, &request), "\"weights\"",
            "another communicator");
    REFUSED(vescomm_reduce_scatter_v_create(comm, slab, NULL, &request), "reduce_scatter_v",
            "\"weights\"", "one slab for each node", "VESCOMM_PER_RANK");
    REFUSED(vescomm_all_reduce_create(comm, slab, NULL, &request), "all_reduce",
            "VESCOMM_PER_RANK");
    options.algorithm = "magic";
    REFUSED(vescomm_all_gather_v_create(comm, own, &options, &request), "\"magic\"", "all_gather_v",
            "there is: ");
    options = vescomm_request_options_init();
    options.op = 12;
    REFUSED(vescomm_all_reduce_create(comm, own, &options, &request), "no op 12",
            "VESCOMM_LOGICAL_XOR (11)");
    options.op = VESCOMM_BITWISE_OR;
    REFUSED(vescomm_all_reduce_create(comm, own, &options, &request), "all_reduce",
            "no bitwise or of f32", "operators combine integers and bool");
    options.op = VESCOMM_PREMULTIPLIED_SUM;
    REFUSED(vescomm_all_reduce_create(comm, own, &options, &request), "factor is 0");
    options.op = VESCOMM_SUM;
    options.factor = 2;
    REFUSED(vescomm_all_reduce_create(comm, own, &options, &request), "takes no factor");
    options = vescomm_request_options_init();
    options.root = 1;
    REFUSED(vescomm_broadcast_create(comm, own, &options, &request), "root is 1", "0 to 0");
    options = vescomm_request_options_init();
    options.output = output;
    REFUSED(vescomm_all_gather_v_create(comm, own, &options, &request), "takes no output", "NULL");
    options.type = VESCOMM_BF16;
    UNSUPPORTED(vescomm_reduce_scatter_v_create(comm, own, &options, &request), "output is bf16",
                "it must be f32, as the buffer is");
    if (strstr(vescomm_get_last_error(), ", or f32") != NULL) {
        printf("FAIL  f32 is listed twice: %s\n", vescomm_get_last_error());
        ++failures;
    }
    options = vescomm_request_options_init();
    options.output = (char *)output + 1;
    REFUSED(vescomm_reduce_scatter_v_create(comm, own, &options, &request),
            "output is not aligned to 4 bytes", "f32");
    options = vescomm_request_options_init();
    options.source = (char *)output + 2;
    REFUSED(vescomm_all_gather_v_create(comm, own, &options, &request),
            "source is not aligned to 4 bytes", "f32");
    options = vescomm_request_options_init();
    options.source = output;
    REFUSED(vescomm_all_reduce_create(comm, own, &options, &request), "takes no source", "NULL");
    REFUSED(vescomm_all_reduce_create(comm, own, &options, &request), "takes no source", "NULL");
    options.type = VESCOMM_I8;
    UNSUPPORTED(vescomm_all_gather_v_create(comm, own, &options, &request), "i8", "f32",
                "\"weights\"");
    options = vescomm_request_options_init();
    options.struct_size = 0;
    REFUSED(vescomm_barrier_create(comm, &options, &request), "struct_size", "is 0");

    /* Collectives on arrays. */
    {
        const int64_t one = 1, negative = -1, many = INT64_MAX;
        vescomm_call_options_t call_options = vescomm_call_options_init();
        vescomm_message_info_t message = vescomm_message_info_init();
        float in[1] = {1}, out[1] = {0};
        REFUSED(vescomm_all_reduce(NULL, in, out, 1, VESCOMM_F32, VESCOMM_SUM, NULL, NULL, NULL),
                "vescomm_all_reduce", "comm is NULL");
        REFUSED(vescomm_all_reduce(comm, NULL, out, 1, VESCOMM_F32, VESCOMM_SUM, NULL, NULL, NULL),
                "source is NULL", "1 elements");
        REFUSED(vescomm_all_reduce(comm, in, out, -1, VESCOMM_F32, VESCOMM_SUM, NULL, NULL, NULL),
                "count is -1");
        REFUSED(vescomm_all_reduce(comm, in, out, 1, VESCOMM_TYPE_DEFAULT, VESCOMM_SUM, NULL, NULL,
                                   NULL),
                "no type 0", "VESCOMM_F32 (1)");
        REFUSED(vescomm_all_reduce(comm, in, out, 1, VESCOMM_F32, VESCOMM_SUM, NULL, out, NULL),
                "vescomm_all_reduce: a stream was given", "pass NULL");
        REFUSED(vescomm_all_reduce(comm, in, out, 1, 18, VESCOMM_SUM, NULL, NULL, NULL),
                "no type 18");
        REFUSED(vescomm_all_reduce(comm, in, out, 1, VESCOMM_F32, 12, NULL, NULL, NULL),
                "no op 12");
        REFUSED(vescomm_all_reduce(comm, in, out, 1, VESCOMM_F32, VESCOMM_LOGICAL_AND, NULL, NULL,
                                   NULL),
                "no logical and of f32");
        REFUSED(vescomm_all_gather_v(comm, in, out, NULL, NULL, VESCOMM_F32, NULL, NULL, NULL),
                "counts is NULL");
        REFUSED(vescomm_all_gather_v(comm, in, out, &negative, NULL, VESCOMM_F32, NULL, NULL, NULL),
                "counts[0] is -1");
        REFUSED(vescomm_all_gather_v(comm, in, out, &many, NULL, VESCOMM_F32, NULL, NULL, NULL),
                "counts[0] is 9223372036854775807");
        REFUSED(vescomm_all_gather_v(comm, in, out, &one, &negative, VESCOMM_F32, NULL, NULL, NULL),
                "offsets[0] of output is -1");
        REFUSED(vescomm_all_gather(NULL, in, out, 1, VESCOMM_F32, NULL, NULL, NULL),
                "vescomm_all_gather", "comm is NULL");
        REFUSED(vescomm_all_gather(comm, in, NULL, 1, VESCOMM_F32, NULL, NULL, NULL),
                "vescomm_all_gather", "output is NULL");
        REFUSED(
            vescomm_reduce_scatter(comm, NULL, out, 1, VESCOMM_F32, VESCOMM_SUM, NULL, NULL, NULL),
            "vescomm_reduce_scatter", "source is NULL");
        REFUSED(vescomm_all_to_all(comm, in, out, many, VESCOMM_F32, NULL, NULL, NULL),
                "vescomm_all_to_all", "count is 9223372036854775807");
        REFUSED(vescomm_broadcast(comm, in, 1, VESCOMM_F32, 1, NULL, NULL, NULL), "root is 1",
                "0 to 0");
        REFUSED(vescomm_all_to_all_v(comm, in, &one, NULL, out, &many, NULL, VESCOMM_F32, NULL,
                                     NULL, NULL),
                "output_counts[0]");
        REFUSED(vescomm_send(NULL, in, 1, VESCOMM_F32, 0, NULL, NULL, NULL), "vescomm_send",
                "comm is NULL");
        REFUSED(vescomm_send(comm, NULL, 1, VESCOMM_F32, 0, NULL, NULL, NULL), "source is NULL");
        REFUSED(vescomm_send(comm, in, many, VESCOMM_F32, 0, NULL, NULL, NULL),
                "count is 9223372036854775807");
        REFUSED(vescomm_send(comm, in, 1, VESCOMM_F32, 1, NULL, NULL, NULL), "peer is 1", "0 to 0");
        REFUSED(vescomm_receive(NULL, out, 1, VESCOMM_F32, 0, NULL, NULL, NULL), "vescomm_receive",
                "comm is NULL");
        REFUSED(vescomm_receive(comm, NULL, 1, VESCOMM_F32, 0, NULL, NULL, NULL), "output is NULL");
        REFUSED(vescomm_receive(comm, out, 1, VESCOMM_F32, -1, NULL, NULL, NULL), "peer is -1");
        REFUSED(vescomm_send(comm, in, 1, VESCOMM_F32, VESCOMM_ANY_SOURCE, NULL, NULL, NULL),
                "peer is -2");
        REFUSED(vescomm_request_get_message(NULL, 0, &message), "vescomm_request_get_message",
                "request is NULL");
        call_options.tag = -1;
        REFUSED(vescomm_receive(comm, out, 1, VESCOMM_F32, 0, &call_options, NULL, NULL),
                "tag is -1");
        call_options.tag = 7;
        REFUSED(vescomm_broadcast(comm, in, 1, VESCOMM_F32, 0, &call_options, NULL, NULL),
                "takes no tag");
        FINE(vescomm_send(comm, in, 1, VESCOMM_F32, 0, &call_options, NULL, &request));
        REFUSED(vescomm_request_get_message(request, 0, &message), "receives 0 messages");
        REFUSED(vescomm_request_get_message(request, 0, NULL), "info is NULL");
        FINE(vescomm_receive(comm, out, 1, VESCOMM_F32, VESCOMM_ANY_SOURCE, &call_options, NULL,
                             NULL));
        FINE(vescomm_request_wait(request));
        FINE(vescomm_request_free(request));
        request = NULL;
        call_options.tag = 0;
        FINE(vescomm_send(comm, in, 1, VESCOMM_F32, 0, NULL, NULL, NULL));
        FINE(vescomm_receive(comm, out, 1, VESCOMM_F32, 0, NULL, NULL, NULL));
        call_options.algorithm = "magic";
        REFUSED(vescomm_all_reduce(comm, in, out, 1, VESCOMM_F32, VESCOMM_SUM, &call_options, NULL,
                                   NULL),
                "\"magic\"", "there is: ");
        REFUSED(vescomm_group_end(comm, NULL), "no group has begun");
        FINE(vescomm_group_begin(comm));
        REFUSED(vescomm_group_begin(comm), "begun already");
        REFUSED(
            vescomm_all_reduce(comm, in, out, 1, VESCOMM_F32, VESCOMM_SUM, NULL, NULL, &request),
            "within a group");
        FINE(vescomm_all_reduce(comm, in, out, 1, VESCOMM_F32, VESCOMM_SUM, NULL, NULL, NULL));
        FINE(vescomm_group_end(comm, NULL));
        FINE(vescomm_all_reduce(comm, NULL, NULL, 0, VESCOMM_F32, VESCOMM_SUM, NULL, NULL, NULL));
    }

    FINE(vescomm_all_gather_v_create(comm, own, NULL, &request));
    REFUSED(vescomm_request_start(NULL, NULL), "request is NULL");
    REFUSED(vescomm_request_start(request, output), "stream", "NULL");
    REFUSED(vescomm_request_explain(request, NULL), "text is NULL");
    FINE(vescomm_request_wait(request)); /* never started */
    FINE(vescomm_request_start(request, NULL));
    REFUSED(vescomm_request_start(request, NULL), "running already");
    FINE(vescomm_request_wait(request));
    FINE(vescomm_request_free(NULL));
    FINE(vescomm_comm_free(comm));
    REFUSED(vescomm_request_start(request, NULL), "finalized");
    FINE(vescomm_request_free(request));
    FINE(vescomm_buffer_free(own));
    FINE(vescomm_buffer_free(slab));
    FINE(vescomm_buffer_free(bytes));
    FINE(vescomm_layout_free(layout));
    FINE(vescomm_comm_free(other));
}

/* Two threads as ranks. Their all-gather copies through memory. */
static pthread_barrier_t meeting;
static char gathered[1 << 18];

static int gather_in_memory(void *rank, const void *mine, size_t bytes, void *all) {
    memcpy(gathered + (size_t) * (int *)rank * bytes, mine, bytes);
    pthread_barrier_wait(&meeting);
    memcpy(all, gathered, 2 * bytes);
    pthread_barrier_wait(&meeting);
    return 0;
}

static void *play(void *argument) {
    const int rank = *(int *)argument;
    vescomm_comm_t *comm = NULL;
    vescomm_layout_t *layout = layout_of(2);
    vescomm_buffer_t *buffer;
    vescomm_request_t *request;
    FINE(vescomm_comm_create_from_all_gather(rank, 2, gather_in_memory, argument, NULL, &comm));
    FINE(vescomm_buffer_create(comm, layout, NULL, &buffer));
    FINE(vescomm_all_gather_v_create(comm, buffer, NULL, &request));
    if (rank == 0) {
        FINE(vescomm_request_start(request, NULL));
        expect(__LINE__, vescomm_request_test(request), VESCOMM_IN_PROGRESS, (char *)NULL);
        REFUSED(vescomm_request_free(request), "still running", "wait for it");
        REFUSED(vescomm_request_start(request, NULL), "all_gather_v", "running already");
    }
    pthread_barrier_wait(&meeting);
    if (rank == 1) FINE(vescomm_request_start(request, NULL));
    FINE(vescomm_request_wait(request));
    FINE(vescomm_request_free(request));
    FINE(vescomm_buffer_free(buffer));
    FINE(vescomm_layout_free(layout));
    FINE(vescomm_comm_free(comm));
    return NULL;
}

/* A creation is rejected on rank 1 only. Neither rank waits, and the error of rank 0 has the
 * reason. */
static void *reject_on_one_rank(void *argument) {
    const int rank = *(int *)argument;
    vescomm_memory_options_t memory_options = vescomm_memory_options_init();
    vescomm_request_options_t options = vescomm_request_options_init();
    vescomm_layout_t *layout = layout_of(2);
    vescomm_memory_t *memory = NULL;
    int what;
    for (what = 0; what < 4; ++what) {
        vescomm_comm_t *comm = NULL;
        vescomm_buffer_t *buffer = NULL;
        vescomm_request_t *request = NULL;
        vescomm_status_t status;
        const char *why = "layout is NULL";
        FINE(vescomm_comm_create_from_all_gather(rank, 2, gather_in_memory, argument, NULL, &comm));
        /* A call that is rejected on all ranks leaves the communicator intact. */
        REFUSED(vescomm_buffer_create(comm, NULL, NULL, &buffer), "layout is NULL");
        FINE(vescomm_buffer_create(comm, layout, NULL, &buffer));
        switch (what) {
            case 0:
                memory_options.bytes = 64;
                memory_options.sharing = rank == 0 ? VESCOMM_PER_RANK : 9;
                status = vescomm_memory_create(comm, &memory_options, &memory);
                why = "there is no sharing 9";
                break;
            case 1:
                status = vescomm_buffer_create(comm, rank == 0 ? layout : NULL, NULL, &buffer);
                break;
            case 2:
                options.op = rank == 0 ? VESCOMM_SUM : 12;
                status = vescomm_all_reduce_create(comm, buffer, &options, &request);
                why = "no op 12";
                break;
            default:
                options = vescomm_request_options_init();
                options.algorithm = rank == 0 ? NULL : "magic";
                status = vescomm_all_gather_v_create(comm, buffer, &options, &request);
                why = "\"magic\"";
        }
        if (rank == 0)
            expect(__LINE__, status, VESCOMM_ERROR_MISMATCH, "rank 1", "its call failed", why,
                   (char *)NULL);
        else REFUSED(status, why);
        expect(__LINE__, vescomm_barrier(comm), VESCOMM_ERROR_MISMATCH, "its call failed",
               (char *)NULL);
        FINE(vescomm_buffer_free(buffer));
        FINE(vescomm_comm_free(comm));
    }
    FINE(vescomm_layout_free(layout));
    return NULL;
}

static void on_two_ranks(void *(*work)(void *)) {
    pthread_t threads[2];
    int ranks[] = {0, 1}, i;
    pthread_barrier_init(&meeting, NULL, 2);
    for (i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, work, &ranks[i]);
    for (i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&meeting);
}

int main(void) {
    communicators();
    layouts();
    buffers();
    requests();
    on_two_ranks(play);
    on_two_ranks(reject_on_one_rank);
    printf("%s\n", failures == 0 ? "ok" : "failed");
    return failures != 0;
}
