/* Preloaded before the library: raises SIGALRM inside the call of dl_iterate_phdr that WALK_AT
 * names, counted from where SIGALRM has a handler. The dynamic linker's lock counts as taken then:
 * a further call on the thread ends the process with status 9, where it might wait for ever.
 *
 * The walk is its own, over the linker's public list: a look-up of libc's would walk again. */
#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#pragma GCC visibility push(default)

static bool is_due(void)
{
    static int count;
    const char *at = getenv("WALK_AT");
    struct sigaction action;

    return at != NULL && sigaction(SIGALRM, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
           ++count == atoi(at);
}

int dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *argument)
{
    static __thread bool is_inside;
    int result = 0;

    if (is_inside)
        _exit(9);
    if (is_due()) {
        is_inside = true;
        raise(SIGALRM);
        is_inside = false;
    }
    for (const struct link_map *map = _r_debug.r_map; map != NULL && result == 0;
         map = map->l_next) {
        const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)map->l_addr;
        struct dl_phdr_info info = {.dlpi_addr = map->l_addr, .dlpi_name = map->l_name};

        if (header == NULL) /* of a program at fixed addresses the start is not known */
            continue;
        info.dlpi_phdr = (const ElfW(Phdr) *)(map->l_addr + header->e_phoff);
        info.dlpi_phnum = header->e_phnum;
        result = visit(&info, sizeof(info), argument);
    }
    return result;
}
