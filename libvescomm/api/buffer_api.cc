// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/buffer.h"

#include "api/guard.h"
#include "api/handles.h"
#include "comm/collective_create.h"

using namespace vescomm::internal;

namespace {

void require_sharing(vescomm_sharing_t sharing, const char *function) {
    if (sharing != VESCOMM_PER_RANK && sharing != VESCOMM_PER_NODE)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) + ": there is no sharing " + std::to_string(sharing) +
                        "; use VESCOMM_PER_RANK or VESCOMM_PER_NODE");
}

void require_kind(vescomm_memory_kind_t kind, const char *function) {
    if (kind != VESCOMM_HOST)
        throw Error(VESCOMM_ERROR_UNSUPPORTED, std::string(function) +
                                                   ": this build has no memory of kind " +
                                                   std::to_string(kind) + "; use VESCOMM_HOST");
}

vescomm_view_t view_of(const Buffer &buffer, std::int64_t offset, std::int64_t elements) {
    return {buffer.at(offset), elements};
}

}  // namespace

vescomm_status_t vescomm_memory_create(vescomm_comm_t *comm,
                                       const vescomm_memory_options_t *options,
                                       vescomm_memory_t **memory) {
    return guarded([&] {
        require(comm, "vescomm_memory_create", "comm");
        collective_create(*comm->value, [&] {
            require(memory, "vescomm_memory_create", "memory");
            const auto given = read_struct(options, "vescomm_memory_create", "options");
            require_kind(given.kind, "vescomm_memory_create");
            require_sharing(given.sharing, "vescomm_memory_create");
            auto made = std::make_unique<vescomm_memory>();
            made->value = Memory::create(comm->value, given.bytes, given.kind, given.sharing,
                                         {.aliases = true, .partial = given.partial_bytes});
            *memory = made.release();
        });
    });
}

vescomm_status_t vescomm_memory_get_data(const vescomm_memory_t *memory, void **data,
                                         uint64_t *bytes) {
    return guarded([&] {
        require(memory, "vescomm_memory_get_data", "memory");
        require(data, "vescomm_memory_get_data", "data");
        *data = memory->value->data();
        if (bytes != nullptr) *bytes = memory->value->bytes();
    });
}

vescomm_status_t vescomm_memory_get_partial_bytes(const vescomm_memory_t *memory, uint64_t *bytes) {
    return guarded([&] {
        require(memory, "vescomm_memory_get_partial_bytes", "memory");
        require(bytes, "vescomm_memory_get_partial_bytes", "bytes");
        *bytes = memory->value->partial_bytes();
    });
}

vescomm_status_t vescomm_malloc(vescomm_comm_t *comm, std::uint64_t bytes, void **pointer) {
    return guarded([&] {
        require(comm, "vescomm_malloc", "comm");
        require(pointer, "vescomm_malloc", "pointer");
        *pointer = comm->value->pool().memory->allocate(bytes);
    });
}

vescomm_status_t vescomm_mfree(vescomm_comm_t *comm, void *pointer) {
    return guarded([&] {
        require(comm, "vescomm_mfree", "comm");
        if (pointer != nullptr) comm->value->pool().memory->free(pointer);
    });
}

vescomm_status_t vescomm_memory_free(vescomm_memory_t *memory) {
    return guarded([&] {
        if (memory == nullptr) return;
        require(memory, "vescomm_memory_free", "memory");
        delete memory;
    });
}

vescomm_status_t vescomm_buffer_create(vescomm_comm_t *comm, const vescomm_layout_t *layout,
                                       const vescomm_buffer_options_t *options,
                                       vescomm_buffer_t **buffer) {
    return guarded([&] {
        require(comm, "vescomm_buffer_create", "comm");
        collective_create(*comm->value, [&] {
            require(layout, "vescomm_buffer_create", "layout");
            require(buffer, "vescomm_buffer_create", "buffer");
            const auto given = read_options(options, "vescomm_buffer_create", "options");
            require_kind(given.kind, "vescomm_buffer_create");
            require_sharing(given.sharing, "vescomm_buffer_create");
            Buffer::Options wanted;
            if (given.type != VESCOMM_TYPE_DEFAULT) wanted.type = given.type;
            if (given.memory != nullptr) {
                require(given.memory, "vescomm_buffer_create", "the memory of options");
                wanted.memory = given.memory->value;
            }
            wanted.offset_bytes = given.offset_bytes;
            wanted.kind = given.kind;
            wanted.sharing = given.sharing;
            wanted.name = given.name != nullptr ? given.name : "buffer";
            auto made = std::make_unique<vescomm_buffer>();
            made->value = Buffer::create(comm->value, layout->value, std::move(wanted));
            *buffer = made.release();
        });
    });
}

vescomm_status_t vescomm_buffer_get_data(const vescomm_buffer_t *buffer, vescomm_view_t *view) {
    return guarded([&] {
        require(buffer, "vescomm_buffer_get_data", "buffer");
        require(view, "vescomm_buffer_get_data", "view");
        *view = view_of(*buffer->value, 0, buffer->value->layout().elements());
    });
}

vescomm_status_t vescomm_buffer_get_tensor(const vescomm_buffer_t *buffer, size_t index,
                                           vescomm_view_t *view) {
    return guarded([&] {
        require(buffer, "vescomm_buffer_get_tensor", "buffer");
        require(view, "vescomm_buffer_get_tensor", "view");
        const auto tensors = buffer->value->layout().tensors();
        if (index >= tensors.size())
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "vescomm_buffer_get_tensor: index is " + std::to_string(index) +
                            ", and buffer \"" + buffer->value->name() + "\" has " +
                            std::to_string(tensors.size()) + " tensors");
        *view = view_of(*buffer->value, tensors[index].offset, tensors[index].elements);
    });
}

vescomm_status_t vescomm_buffer_get_shard(const vescomm_buffer_t *buffer, vescomm_view_t *view) {
    return guarded([&] {
        require(buffer, "vescomm_buffer_get_shard", "buffer");
        require(view, "vescomm_buffer_get_shard", "view");
        const auto shard = buffer->value->layout().shard(buffer->value->comm().rank());
        *view = view_of(*buffer->value, shard.begin, shard.elements());
    });
}

vescomm_status_t vescomm_buffer_release(vescomm_buffer_t *buffer) {
    return guarded([&] {
        require(buffer, "vescomm_buffer_release", "buffer");
        if (buffer->value->per_node()) buffer->value->memory().release();
    });
}

vescomm_status_t vescomm_buffer_acquire(vescomm_buffer_t *buffer) {
    return guarded([&] {
        require(buffer, "vescomm_buffer_acquire", "buffer");
        buffer->value->memory().acquire("acquiring \"" + buffer->value->name() + "\"");
    });
}

vescomm_status_t vescomm_buffer_free(vescomm_buffer_t *buffer) {
    return guarded([&] {
        if (buffer == nullptr) return;
        require(buffer, "vescomm_buffer_free", "buffer");
        delete buffer;
    });
}
