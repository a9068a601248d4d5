#define _GNU_SOURCE
#include "tools/doctor/doctor_elf.h"

#include "core/io/elf.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef DF_1_PIE
#define DF_1_PIE 0x08000000
#endif
#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#endif

#define ENCODER "libnvidia-encode"

static void read_needed(struct doctor_elf *elf, const char *name)
{
    if (gc_elf_names_library(name, "libcudart"))
        snprintf(elf->runtime, sizeof(elf->runtime), "%s", name);
    if (strncmp(name, "libcuda.so", 10) == 0)
        elf->needs_driver = true;
    elf->names_encoder |= gc_elf_names_library(name, ENCODER);
}

static void read_dynamic(Elf *file, Elf_Scn *section, const GElf_Shdr *header,
                         struct doctor_elf *elf)
{
    Elf_Data *data = elf_getdata(section, NULL);
    GElf_Dyn entry;
    elf->is_dynamic = true;
    for (int i = 0; data != NULL && gelf_getdyn(data, i, &entry) != NULL; i++) {
        const char *name = entry.d_tag == DT_NEEDED
                               ? elf_strptr(file, header->sh_link, (size_t)entry.d_un.d_val)
                               : NULL;
        if (name != NULL)
            read_needed(elf, name);
        elf->is_pie |= entry.d_tag == DT_FLAGS_1 && (entry.d_un.d_val & DF_1_PIE) != 0;
    }
}

static void read_symbols(Elf *file, Elf_Scn *section, const GElf_Shdr *header,
                         struct doctor_elf *elf)
{
    Elf_Data *data = elf_getdata(section, NULL);
    GElf_Sym symbol;
    for (int i = 0; data != NULL && gelf_getsym(data, i, &symbol) != NULL; i++) {
        const char *name = elf_strptr(file, header->sh_link, symbol.st_name);
        if (name == NULL)
            continue;
        if (symbol.st_shndx == SHN_UNDEF) {
            elf->imports_dlopen |= strcmp(name, "dlopen") == 0;
            elf->imports_dlmopen |= strcmp(name, "dlmopen") == 0;
        } else if (GELF_ST_TYPE(symbol.st_info) == STT_FUNC) {
            elf->defines_allocation |=
                strcmp(name, "cuMemAlloc_v2") == 0 || strcmp(name, "cudaMalloc") == 0;
        }
    }
}

/* Strings lie in read-only data sections. */
static void read_texts(Elf_Scn *section, struct doctor_elf *elf)
{
    const Elf_Data *data = elf_rawdata(section, NULL);
    const struct {
        const char *text;
        bool *found;
    } texts[] = {{"libcuda.so", &elf->names_driver},
                 {"cuGetProcAddress", &elf->names_resolver},
                 {ENCODER, &elf->names_encoder}};
    if (data == NULL || data->d_buf == NULL)
        return;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        *texts[i].found |=
            memmem(data->d_buf, data->d_size, texts[i].text, strlen(texts[i].text)) != NULL;
}

static void read_section(Elf *file, Elf_Scn *section, size_t names, struct doctor_elf *elf)
{
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == NULL)
        return;
    const char *name = elf_strptr(file, names, header.sh_name);
    if (name != NULL && strcasecmp(name, ".nv_fatbin") == 0)
        elf->has_device_code = true;
    else if (header.sh_type == SHT_DYNAMIC)
        read_dynamic(file, section, &header, elf);
    else if (header.sh_type == SHT_DYNSYM)
        read_symbols(file, section, &header, elf);
    else if (header.sh_type == SHT_PROGBITS && (header.sh_flags & SHF_ALLOC) != 0 &&
             (header.sh_flags & (SHF_WRITE | SHF_EXECINSTR)) == 0)
        read_texts(section, elf);
}

static void read_interpreter(Elf *file, struct doctor_elf *elf)
{
    size_t count;
    size_t bytes;
    const char *image = elf_rawfile(file, &bytes);
    if (image == NULL || elf_getphdrnum(file, &count) != 0)
        return;
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr header;
        if (gelf_getphdr(file, (int)i, &header) == NULL)
            continue;
        elf->is_dynamic |= header.p_type == PT_DYNAMIC;
        if (header.p_type == PT_INTERP && header.p_offset < bytes &&
            header.p_filesz <= bytes - header.p_offset)
            snprintf(elf->interpreter, sizeof(elf->interpreter), "%.*s", (int)header.p_filesz,
                     image + header.p_offset);
    }
}

static void read_file(Elf *file, const GElf_Ehdr *header, struct doctor_elf *elf)
{
    size_t names;
    elf->is_64 = gelf_getclass(file) == ELFCLASS64;
    elf->is_of_this_machine = header->e_machine == MACHINE;
    elf->is_executable = header->e_type == ET_EXEC || header->e_type == ET_DYN;
    read_interpreter(file, elf);
    if (elf_getshdrstrndx(file, &names) != 0)
        return;
    for (Elf_Scn *section = NULL; (section = elf_nextscn(file, section)) != NULL;)
        read_section(file, section, names, elf);
    elf->is_library = header->e_type == ET_DYN && elf->interpreter[0] == '\0' && !elf->is_pie;
}

bool doctor_elf_read(const char *path, struct doctor_elf *elf, char *error, size_t error_bytes)
{
    struct stat facts;
    GElf_Ehdr header;
    bool done = false;
    *elf = (struct doctor_elf){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        snprintf(error, error_bytes, "%s",
                 fd < 0                   ? strerror(errno)
                 : S_ISDIR(facts.st_mode) ? "a folder"
                                          : "not a regular file");
        if (fd >= 0)
            close(fd);
        return false;
    }
    (void)elf_version(EV_CURRENT);
    Elf *file = elf_begin(fd, ELF_C_READ_MMAP, NULL);
    if (file != NULL && elf_kind(file) == ELF_K_ELF && gelf_getehdr(file, &header) != NULL) {
        read_file(file, &header, elf);
        done = true;
    } else {
        snprintf(error, error_bytes, "not an ELF file");
    }
    elf_end(file);
    close(fd);
    return done;
}

bool doctor_elf_has_static_runtime(const struct doctor_elf *elf)
{
    return elf->runtime[0] == '\0' && elf->has_device_code && elf->names_driver &&
           elf->names_resolver;
}
