// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/add_gradient.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "execute/kernels.h"
#include "fsdp/engine/gradient_writes.h"

namespace vescomm::fsdp {

void add_gradient(const void *from, vescomm_type_t type, std::size_t count, bool add, void *to,
                  vescomm_type_t to_type) {
    require_gradient_type(type, to_type);
    if (count == 0) return;
    const internal::Kernels &kernels = internal::kernels();
    if (!add) return kernels.convert(to, to_type, from, type, count);
    if (type == to_type) {
        const void *sources[] = {to, from};
        return kernels.reduce({}, sources, to_type, {}, to, to_type, count);
    }
    // 16 KiB, within the first cache.
    std::array<float, 4096> sum;
    const std::size_t size = vescomm_type_get_bytes(to_type);
    for (std::size_t begin = 0; begin < count; begin += sum.size()) {
        const std::size_t length = std::min(sum.size(), count - begin);
        void *part = static_cast<std::byte *>(to) + begin * size;
        kernels.convert(sum.data(), VESCOMM_F32, part, to_type, length);
        const void *sources[] = {sum.data(), static_cast<const float *>(from) + begin};
        kernels.reduce({}, sources, VESCOMM_F32, {}, sum.data(), VESCOMM_F32, length);
        kernels.convert(part, to_type, sum.data(), VESCOMM_F32, length);
    }
}

}  // namespace vescomm::fsdp
