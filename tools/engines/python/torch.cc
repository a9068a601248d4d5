/* PyTorch's pluggable allocator on gpucache.h: a request without memory is thrown as the C++ class c10::OutOfMemoryError, which
 * PyTorch hands to Python as torch.OutOfMemoryError. A pluggable allocator that returns NULL is not checked by PyTorch.
 *
 * The file is built without PyTorch's headers, so that one object serves all its versions: the class's type, its virtual table
 * and the constructor of its base c10::Error are looked up by their names (Itanium C++ ABI) in the PyTorch of the process. An
 * error is constructed in room that is larger than the class has ever been, and destroyed by its virtual destructor, as the
 * compiler's own `throw` does. */
#define GPUCACHE_WANT_LOADER
#include "core/gpucache.h"

#include <cstdio>
#include <cxxabi.h>
#include <string>
#include <sys/types.h>
#include <typeinfo>

/* The versions of glibc before 2.34, which later ones have too. */
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlclose,dlclose@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr size_t error_bytes = 4096; /* c10::Error has some 200 */

/* c10::SourceLocation */
struct source_location {
    const char *function;
    const char *file;
    uint32_t line;
};

struct {
    gpucache_functions library;
    void (*construct)(void *self, source_location where, std::string message);
    std::type_info *out_of_memory;
    std::type_info *error;
    void **out_of_memory_table;
} bound;

void destroy(void *self)
{
    using destructor = void (*)(void *);
    (**static_cast<destructor **>(self))(self);
}

[[noreturn]] void throw_as(bool is_short, const std::string &message)
{
    void *room = abi::__cxa_allocate_exception(error_bytes);
    bound.construct(room, {"gpucache_torch_take", "gpucache", 0}, message);
    if (is_short)
        *static_cast<void **>(room) = bound.out_of_memory_table + 2; /* behind offset and type */
    abi::__cxa_throw(room, is_short ? bound.out_of_memory : bound.error, destroy);
}

std::string size_text(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    double value = static_cast<double>(bytes);
    char text[32];
    unsigned unit = 0;
    for (; unit < 3 && value >= 1024; unit++)
        value /= 1024;
    snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text;
}

std::string figures_text(int device)
{
    gpucache_statistics figures = {};
    figures.struct_bytes = sizeof(figures);
    if (bound.library.gpucache_get_statistics(device, &figures) != GPUCACHE_OK)
        return "";
    std::string text = " GPU " + std::to_string(device) + " has " + size_text(figures.total_bytes);
    if (figures.limit_bytes != GPUCACHE_NO_LIMIT)
        text += ", the limit is " + size_text(figures.limit_bytes);
    return text + ", live are " + size_text(figures.allocated_bytes) + ", reserved " +
           size_text(figures.reserved_bytes) + ", idle " + size_text(figures.idle_bytes) + ".";
}

} // namespace

/* Finds the functions of `library`, a handle of libgpucache.so, and PyTorch's class in `c10` and `c10_cuda`, handles of
 * libc10.so and libc10_cuda.so. NULL, or the name that was not found. */
EXPORT const char *gpucache_torch_bind(void *library, void *c10, void *c10_cuda)
{
    static const char construct[] = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_string"
                                    "IcSt11char_traitsIcESaIcEEE";
    static const char *const names[] = {construct, "_ZTIN3c105ErrorE", "_ZTIN3c1016OutOfMemoryErrorE",
                                        "_ZTVN3c1016OutOfMemoryErrorE"};
    void *found[4];
    if (gpucache_load(library, &bound.library) != GPUCACHE_OK)
        return "gpucache_api_version";
    for (int i = 0; i < 4; i++) {
        found[i] = dlsym(i < 2 ? c10 : c10_cuda, names[i]);
        if (found[i] == nullptr)
            return names[i];
    }
    memcpy(&bound.construct, &found[0], sizeof(found[0]));
    bound.error = static_cast<std::type_info *>(found[1]);
    bound.out_of_memory = static_cast<std::type_info *>(found[2]);
    bound.out_of_memory_table = static_cast<void **>(found[3]);
    return nullptr;
}

/* For CUDAPluggableAllocator, once bound. */
EXPORT void *gpucache_torch_take(ssize_t bytes, int device, void *stream)
{
    void *pointer = nullptr;
    if (bytes <= 0)
        return nullptr;
    const gpucache_status status =
        bound.library.gpucache_malloc(&pointer, static_cast<size_t>(bytes), device, stream);
    const bool is_short = status == GPUCACHE_OUT_OF_MEMORY || status == GPUCACHE_LIMIT_REACHED;
    if (is_short)
        throw_as(true, "CUDA out of memory. Tried to allocate " + size_text(static_cast<uint64_t>(bytes)) +
                           ": " + bound.library.gpucache_status_text(status) + "." + figures_text(device));
    if (status != GPUCACHE_OK)
        throw_as(false, "gpucache: " + size_text(static_cast<uint64_t>(bytes)) + " on GPU " +
                            std::to_string(device) + ": " + bound.library.gpucache_status_text(status));
    return pointer;
}

EXPORT void gpucache_torch_give(void *pointer, ssize_t bytes, int device, void *stream)
{
    bound.library.gpucache_torch_free(pointer, bytes, device, stream);
}
