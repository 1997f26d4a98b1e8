#include "buffer.h"

#include "../verifier/hooks.h"
#include "extents.h"

#include <new>

namespace {

// ggml's alignment of tensors in Metal buffers. A buffer's size is a multiple of it unless ggml was asked for an odd
// one, so the guard page begins where the buffer ends.
constexpr size_t buffer_alignment = 32;

}  // namespace

ggml_metal_buffer::~ggml_metal_buffer() {
    metal_sim::verifier::remove_memory(memory.data);
    if (ledger) {
        *ledger -= pages.size();
    }
}

unsigned char * ggml_metal_buffer::at(const ggml_tensor * tensor, size_t offset) const {
    return memory.data + (static_cast<const char *>(tensor->data) - base) + offset;
}

void ggml_metal_buffer::copy_from(const ggml_metal_buffer & other, const ggml_tensor * src, ggml_tensor * dst) const {
    std::memmove(at(dst, 0), other.at(src, 0), ggml_nbytes(src));
    metal_sim::verifier::initialise_as(at(dst, 0), other.at(src, 0), ggml_nbytes(src));
}

extern "C" {

ggml_metal_buffer_t ggml_metal_buffer_init(ggml_metal_device_t dev, size_t size, bool shared) {
    std::unique_ptr<ggml_metal_buffer> buffer(new (std::nothrow) ggml_metal_buffer);
    if (!buffer || size > dev->props.max_buffer_size || !buffer->pages.map_poisoned(size)) {
        GGML_LOG_ERROR("%s: error: failed to allocate buffer, size = %8.2f MiB\n", __func__, size / 1024.0 / 1024.0);
        return nullptr;
    }
    buffer->ledger = dev->allocated;
    *buffer->ledger += buffer->pages.size();

    buffer->memory    = { buffer->pages.last(size, buffer_alignment), size };
    buffer->is_shared = shared && dev->props.use_shared_buffers;
    buffer->base      = buffer->is_shared ? reinterpret_cast<char *>(buffer->memory.data) :
                                            reinterpret_cast<char *>(dev->addr_virt.fetch_add(buffer->pages.size()));
    metal_sim::verifier::add_memory(buffer->memory.data, size, buffer->pages.begin(), buffer->pages.readable_end(),
                                    buffer->base, false);
    return buffer.release();
}

// The host's memory stays where it is, without guards. One view always suffices: only a real device has a limit below
// the address space for them.
ggml_metal_buffer_t ggml_metal_buffer_map(ggml_metal_device_t dev, void * ptr, size_t size, size_t max_tensor_size) {
    GGML_UNUSED(dev);
    GGML_UNUSED(max_tensor_size);

    ggml_metal_buffer * const buffer = new (std::nothrow) ggml_metal_buffer;
    if (buffer != nullptr) {
        buffer->memory    = { static_cast<unsigned char *>(ptr), size };
        buffer->is_shared = true;
        buffer->base      = static_cast<char *>(ptr);
        metal_sim::verifier::add_memory(buffer->memory.data, size, buffer->memory.data, buffer->memory.data + size, ptr,
                                        true);
    }
    return buffer;
}

void ggml_metal_buffer_free(ggml_metal_buffer_t buf) {
    delete buf;
}

void * ggml_metal_buffer_get_base(ggml_metal_buffer_t buf) {
    return buf->base;
}

bool ggml_metal_buffer_is_shared(ggml_metal_buffer_t buf) {
    return buf->is_shared;
}

void ggml_metal_buffer_memset_tensor(ggml_metal_buffer_t buf, ggml_tensor * tensor, uint8_t value, size_t offset,
                                     size_t size) {
    std::memset(buf->at(tensor, offset), value, size);
    metal_sim::verifier::initialise(buf->at(tensor, offset), size);
}

void ggml_metal_buffer_set_tensor(ggml_metal_buffer_t buf, ggml_tensor * tensor, const void * data, size_t offset,
                                  size_t size) {
    std::memcpy(buf->at(tensor, offset), data, size);
    metal_sim::verifier::initialise(buf->at(tensor, offset), size);
}

void ggml_metal_buffer_get_tensor(ggml_metal_buffer_t buf, const ggml_tensor * tensor, void * data, size_t offset,
                                  size_t size) {
    std::memcpy(data, buf->at(tensor, offset), size);
}

bool ggml_metal_buffer_cpy_tensor(ggml_metal_buffer_t buf_dst, const ggml_tensor * src, ggml_tensor * dst) {
    const ggml_metal_buffer_t buf_src = static_cast<ggml_metal_buffer_t>(src->buffer->context);
    buf_dst->copy_from(*buf_src, src, dst);
    return true;
}

void ggml_metal_buffer_clear(ggml_metal_buffer_t buf, uint8_t value) {
    std::memset(buf->memory.data, value, buf->memory.size);
    // Who fills a buffer with poison, as ggml-rs does, has put nothing there.
    if (value == metal_sim::poison_byte) {
        metal_sim::verifier::poison(buf->memory.data, buf->memory.size);
    } else {
        metal_sim::verifier::initialise(buf->memory.data, buf->memory.size);
    }
}

ggml_metal_buffer_id ggml_metal_buffer_get_id(ggml_metal_buffer_t buf, const ggml_tensor * t) {
    const int64_t offset = static_cast<const char *>(t->data) - buf->base;
    if (offset < 0 || offset + static_cast<int64_t>(ggml_nbytes(t)) > static_cast<int64_t>(buf->memory.size)) {
        GGML_LOG_ERROR("%s: error: tensor '%s' buffer is nil\n", __func__, t->name);
        return { nullptr, 0 };
    }
    metal_sim::note_tensor(t, buf->memory.data + offset, buf->memory.size - static_cast<size_t>(offset));
    return { &buf->memory, static_cast<size_t>(offset) };
}
}
