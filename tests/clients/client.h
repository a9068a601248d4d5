/* Common to the client programs: each call is made through CALL, which ends the program if it
 * fails, and counts it by name. client_finish prints `count NAME N` for each name, in the order of
 * first use. */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_NAMES_MAX 128

static struct {
    const char *name;
    unsigned long count;
} client_calls[CLIENT_NAMES_MAX];

static void client_call(const char *name, int result, int line)
{
    int i = 0;

    if (result != 0) {
        fprintf(stderr, "line %d: %s: CUDA error %d\n", line, name, result);
        exit(EXIT_FAILURE);
    }
    while (i < CLIENT_NAMES_MAX - 1 && client_calls[i].name && strcmp(client_calls[i].name, name))
        i++;
    client_calls[i].name = name;
    client_calls[i].count++;
}

static void client_require(int holds, const char *what, int line)
{
    if (holds)
        return;
    fprintf(stderr, "line %d: does not hold: %s\n", line, what);
    exit(EXIT_FAILURE);
}
#define REQUIRE(condition) client_require(!!(condition), #condition, __LINE__)

/* A pattern that depends on where it stands, and its sum (FNV-1a). */
static void client_fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 13);
}

static uint32_t client_sum(const unsigned char *bytes, size_t count)
{
    uint32_t sum = 2166136261u;

    for (size_t i = 0; i < count; i++)
        sum = (sum ^ bytes[i]) * 16777619u;
    return sum;
}

static void client_result(const char *what, const unsigned char *bytes, size_t count)
{
    printf("result %s %08x\n", what, (unsigned)client_sum(bytes, count));
}

static int client_finish(void)
{
    for (int i = 0; i < CLIENT_NAMES_MAX && client_calls[i].name; i++)
        printf("count %s %lu\n", client_calls[i].name, client_calls[i].count);
    return EXIT_SUCCESS;
}

#endif
