/* Asks cuGetProcAddress of one library for names at each version and with each flag.
 *
 * usage: look_ups LIBRARY < NAMES
 *
 * Prints NAME FLAGS and, for each version at which the answer changes, VERSION:ANSWER; last `calls`
 * and their number. An answer is the code, the status, the pointer (None, or its number in this
 * line), the older function's code, and whether its pointer is the same. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLAGS_COUNT 5
#define NOT_FOUND ((void *)77) /* what a call leaves where it writes nothing */
#define NOT_FOUND_OLD ((void *)78)
#define NO_STATUS 79

static int (*look_up)(const char *, void **, int, uint64_t, int *);
static int (*look_up_older)(const char *, void **, int, uint64_t);
static int versions[1100], version_count;

static void add_versions(void)
{
    versions[version_count++] = 0;
    for (int version = 2000; version <= 12020; version += 10)
        versions[version_count++] = version;
    versions[version_count++] = 12030;
    versions[version_count++] = 13000;
    versions[version_count++] = -1;
}

/* The name of a pointer in its line, by the order in which the line has them. */
static void name_pointer(void *pointer, char *text, size_t size, void **seen, int *seen_count)
{
    int i = 0;
    while (i < *seen_count && seen[i] != pointer)
        i++;
    if (i == *seen_count)
        seen[(*seen_count)++] = pointer;
    if (pointer == NULL)
        snprintf(text, size, "None");
    else if (pointer == NOT_FOUND)
        snprintf(text, size, "77");
    else
        snprintf(text, size, "p%d", i);
}

static void ask(const char *name, uint64_t flags)
{
    static void *seen[sizeof(versions) / sizeof(versions[0])];
    int seen_count = 0;
    char last[128] = "";
    printf("%s %d", name, (int)flags);
    for (int i = 0; i < version_count; i++) {
        void *address = NOT_FOUND, *old = NOT_FOUND_OLD;
        int status = NO_STATUS;
        char pointer[32], answer[128];
        const int code = look_up(name, &address, versions[i], flags, &status);
        const int code_old = look_up_older(name, &old, versions[i], flags);
        name_pointer(address, pointer, sizeof(pointer), seen, &seen_count);
        snprintf(answer, sizeof(answer), "%d,%d,%s,%d,%s", code, status, pointer, code_old,
                 old == address         ? "same"
                 : old == NOT_FOUND_OLD ? "78"
                                        : "other");
        if (strcmp(answer, last) != 0)
            printf(" %d:%s", versions[i], answer);
        strcpy(last, answer);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    char name[256];
    long calls = 0;
    if (library == NULL)
        return EXIT_FAILURE;
    *(void **)&look_up = dlsym(library, "cuGetProcAddress_v2");
    *(void **)&look_up_older = dlsym(library, "cuGetProcAddress");
    if (look_up == NULL || look_up_older == NULL)
        return EXIT_FAILURE;
    add_versions();
    while (scanf("%255s", name) == 1) {
        for (uint64_t flags = 0; flags < FLAGS_COUNT; flags++)
            ask(name, flags);
        calls += 2L * FLAGS_COUNT * version_count;
    }
    printf("calls %ld\n", calls);
    return EXIT_SUCCESS;
}
