/* Code images: how large they are and which names they plainly have.
 *
 * PTX text and ELF (cubin) images can be read: a kernel or variable that is not in them is not
 * found. A fat binary may be compressed, and then any name is taken to be there; a variable gets
 * SIM_OPAQUE_VARIABLE_BYTES. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_image.h"

#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
#define SIM_OPAQUE_VARIABLE_BYTES 65536u

struct fatbin_wrapper { /* as nvcc lays it out */
    uint32_t magic, version;
    const void *data;
    const void *file;
};

struct fatbin_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t fat_bytes;
};

/* ---- how large ---- */

static size_t elf_bytes(const Elf64_Ehdr *elf)
{
    size_t sections = elf->e_shoff + (size_t)elf->e_shnum * elf->e_shentsize;
    size_t segments = elf->e_phoff + (size_t)elf->e_phnum * elf->e_phentsize;
    return sections > segments ? sections : segments;
}

static bool is_ptx(const char *text)
{
    const size_t looked_at = 4096; /* comments come before the first directive */
    for (size_t i = 0; i < looked_at && text[i]; i++) {
        if (strncmp(text + i, ".version", 8) == 0)
            return true;
        if (!isprint((unsigned char)text[i]) && !isspace((unsigned char)text[i]))
            return false;
    }
    return false;
}

CUresult image_load(struct sim_image *image, const void *data)
{
    struct fatbin_wrapper wrapper;
    struct fatbin_header header;
    uint32_t magic;

    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&magic, data, sizeof magic);
    if (magic == FATBIN_WRAPPER_MAGIC) {
        memcpy(&wrapper, data, sizeof wrapper);
        data = wrapper.data;
        memcpy(&magic, data, sizeof magic);
    }
    if (magic == FATBIN_MAGIC) {
        memcpy(&header, data, sizeof header);
        image->kind = IMAGE_FATBIN;
        image->bytes = header.header_bytes + header.fat_bytes;
    } else if (memcmp(&magic, ELFMAG, SELFMAG) == 0) {
        image->kind = IMAGE_ELF;
        image->bytes = elf_bytes(data);
    } else if (is_ptx(data)) {
        image->kind = IMAGE_PTX;
        image->bytes = strlen(data);
    } else {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    image->data = malloc(image->bytes + 1);
    if (!image->data)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(image->data, data, image->bytes);
    image->data[image->bytes] = '\0';
    return CUDA_SUCCESS;
}

CUresult image_load_file(struct sim_image *image, const char *path)
{
    FILE *file = path ? fopen(path, "rbe") : NULL;
    char *data = NULL;
    long bytes = -1;
    CUresult result = CUDA_ERROR_INVALID_IMAGE;

    if (!file)
        return path ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    if (fseek(file, 0, SEEK_END) == 0)
        bytes = ftell(file);
    rewind(file);
    if (bytes > 0)
        data = calloc(1, (size_t)bytes + sizeof(Elf64_Ehdr));
    if (data && fread(data, 1, (size_t)bytes, file) == (size_t)bytes)
        result = image_load(image, data);
    free(data);
    fclose(file);
    return result;
}

void image_free(struct sim_image *image)
{
    free(image->data);
    image->data = NULL;
}

/* ---- PTX ---- */

static bool is_name(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_' || letter == '$' || letter == '%';
}

/* The statement's next occurrence of `name` as a whole word after `directive`; NULL if none. */
static const char *ptx_find(const char *text, const char *directive, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = strstr(text, directive); at; at = strstr(at + 1, directive)) {
        const char *end = at + strcspn(at, ";({");
        for (const char *word = at; word && word < end;) {
            word = memmem(word, (size_t)(end - word) + 1, name, length);
            if (word && !is_name(word[-1]) && !is_name(word[length]))
                return word;
            word = word ? word + 1 : NULL;
        }
    }
    return NULL;
}

/* `.global .align 4 .b8 name[1024]`: the type's bits before, the count behind. */
static uint64_t ptx_variable_bytes(const char *text, const char *name, const char *found)
{
    uint64_t element_bytes = 4, count = 1;
    const char *type = found;

    while (type > text && *type != ';' &&
           !(*type == '.' && strchr("busf", type[1]) && isdigit((unsigned char)type[2])))
        type--;
    if (*type == '.')
        element_bytes = strtoull(type + 2, NULL, 10) / 8;
    for (const char *at = found + strlen(name); *at == '[';
         at = strchr(at, ']') ? strchr(at, ']') + 1 : "")
        count *= strtoull(at + 1, NULL, 10);
    return element_bytes * count;
}

/* ---- ELF ---- */

static bool elf_has_section(const struct sim_image *image, const char *prefix, const char *name)
{
    char section[512];
    int length = snprintf(section, sizeof section, "%s%s", prefix, name);
    return length > 0 && (size_t)length < sizeof section &&
           memmem(image->data, image->bytes, section, (size_t)length + 1) != NULL;
}

/* The size of a variable in the symbol table of an ELF image that begins at `start`; 0 if there is
 * none. */
static uint64_t elf_variable_bytes(const char *start, size_t available, const char *name)
{
    Elf64_Ehdr elf;
    Elf64_Shdr section, strings;
    Elf64_Sym symbol;

    if (available < sizeof elf)
        return 0;
    memcpy(&elf, start, sizeof elf);
    for (size_t i = 0; i < elf.e_shnum; i++) {
        size_t at = elf.e_shoff + i * sizeof section;
        if (at + sizeof section > available)
            return 0;
        memcpy(&section, start + at, sizeof section);
        at = elf.e_shoff + section.sh_link * sizeof section;
        if (section.sh_type != SHT_SYMTAB || section.sh_offset + section.sh_size > available ||
            at + sizeof strings > available)
            continue;
        memcpy(&strings, start + at, sizeof strings);
        for (size_t j = 0; j + sizeof symbol <= section.sh_size; j += sizeof symbol) {
            memcpy(&symbol, start + section.sh_offset + j, sizeof symbol);
            size_t text = strings.sh_offset + symbol.st_name;
            if (text + strlen(name) < available && ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT &&
                strcmp(start + text, name) == 0)
                return symbol.st_size;
        }
    }
    return 0;
}

/* ---- what is in it ---- */

bool image_has_function(const struct sim_image *image, const char *name)
{
    switch (image->kind) {
    case IMAGE_PTX:
        return ptx_find(image->data, ".entry", name) != NULL;
    case IMAGE_ELF:
        return elf_has_section(image, ".text.", name);
    default:
        return true;
    }
}

bool image_names(const struct sim_image *image, const char *name)
{
    return memmem(image->data, image->bytes, name, strlen(name)) != NULL;
}

static const char *last_before(const char *text, const char *end, const char *directive)
{
    const char *last = NULL;

    for (const char *at = strstr(text, directive); at && at < end; at = strstr(at + 1, directive))
        last = at;
    return last;
}

/* Whether the text at that place is of the kernel's body or of a function that it may call. */
static bool is_of_kernel(const char *text, const char *at, const char *kernel)
{
    const char *entry = last_before(text, at, ".entry"), *call = last_before(text, at, ".func");
    const char *found = entry ? ptx_find(entry, ".entry", kernel) : NULL;

    return !entry || (call && call > entry) || (found && found < entry + strcspn(entry, "({"));
}

/* Functions' local variables are not alive together: the largest counts. */
uint64_t image_local_bytes(const struct sim_image *image, const char *kernel)
{
    const char *at = image->kind == IMAGE_PTX ? strstr(image->data, ".local") : NULL;
    uint64_t largest = 0;

    for (; at; at = strstr(at + 1, ".local")) {
        const char *name = at + strcspn(at, "[;{");
        if (*name != '[' || !is_of_kernel(image->data, at, kernel))
            continue;
        uint64_t bytes = ptx_variable_bytes(at, "", name);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

uint64_t image_variable_bytes(const struct sim_image *image, const char *name)
{
    const char *found;

    switch (image->kind) {
    case IMAGE_PTX:
        found = ptx_find(image->data, ".global", name);
        if (!found)
            found = ptx_find(image->data, ".const", name);
        return found ? ptx_variable_bytes(image->data, name, found) : 0;
    case IMAGE_ELF:
        return elf_variable_bytes(image->data, image->bytes, name);
    default:
        for (const char *at = image->data, *end = at + image->bytes; at; at++) {
            at = memmem(at, (size_t)(end - at), ELFMAG, SELFMAG);
            if (!at)
                break;
            uint64_t bytes = elf_variable_bytes(at, (size_t)(end - at), name);
            if (bytes)
                return bytes;
        }
        return SIM_OPAQUE_VARIABLE_BYTES;
    }
}
