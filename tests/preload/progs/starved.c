/* link: -l:libcuda.so.1 */
/* Initialises CUDA while the process can get no more than so much address space, or, with "heap",
 * while malloc has nothing left either. Prints what cuInit answers. usage: starved BYTES [heap] */
#include "program.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static unsigned long pages_in_use(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu", &pages) != 1)
        exit(EXIT_FAILURE);
    fclose(file);
    return pages;
}

/* The memory is never freed: the process ends soon. */
static void use_up_heap(void)
{
    static void *volatile last;
    for (size_t bytes = 4096; bytes >= 16; bytes /= 2) {
        do {
            last = malloc(bytes);
        } while (last != NULL);
    }
}

int main(int argc, char **argv)
{
    static char answer[32];
    const unsigned long slack = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    const unsigned long page = (unsigned long)sysconf(_SC_PAGESIZE);
    struct rlimit limit;
    limit.rlim_cur = limit.rlim_max = pages_in_use() * page + slack;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return EXIT_FAILURE;
    if (argc > 2)
        use_up_heap();
    const int length = snprintf(answer, sizeof(answer), "%d\n", (int)cuInit(0));
    return write(STDOUT_FILENO, answer, (size_t)length) == length ? EXIT_SUCCESS : EXIT_FAILURE;
}
