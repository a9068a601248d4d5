/* The loop of both demo programs: it allocates and frees device memory as a training step does.
 *
 * Each step takes blocks of many sizes, fills each with a byte of its own, and before it frees one
 * reads part of it back: a block that two owners share at once shows as a wrong byte. The
 * printed sum of the memory's content depends on the step count alone, so two runs must print the
 * same.
 *
 * The including file defines workload_alloc, _fill, _read and _free; each ends the program on an
 * error. */
#ifndef DEMO_WORKLOAD_H
#define DEMO_WORKLOAD_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WORKLOAD_SLOTS 64
#define WORKLOAD_STEPS 4000ul
#define WORKLOAD_READ_BYTES 512u

static void *workload_alloc(size_t bytes);
static void workload_fill(void *block, unsigned char value, size_t bytes);
static void workload_read(unsigned char *to, const void *block, size_t bytes);
static void workload_free(void *block);

struct workload_slot {
    void *block;
    size_t bytes;
    unsigned char value;
};

static uint64_t workload_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* xorshift64: the same sequence everywhere. */
static uint64_t workload_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Arguments: the number of steps, and of blocks at the end that are never freed. Other text counts
 * for nothing: examples of the documents call it like a program of their own. */
static int workload_run(const char *device_name, int argc, char **argv)
{
    unsigned long asked = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    unsigned long steps = asked > 0 ? asked : WORKLOAD_STEPS;
    unsigned long leaks = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    struct workload_slot slots[WORKLOAD_SLOTS] = {{NULL, 0, 0}};
    uint64_t state = 88172645463325252u, checksum = 14695981039346656037u, memory_ns = 0, taken = 0;
    uint64_t requested_bytes = 0, wrong_bytes = 0;
    unsigned char sample[WORKLOAD_READ_BYTES];

    for (unsigned long step = 0; step < steps + WORKLOAD_SLOTS; step++) {
        struct workload_slot *slot = &slots[step % WORKLOAD_SLOTS];
        if (slot->block != NULL) {
            size_t bytes = slot->bytes < sizeof(sample) ? slot->bytes : sizeof(sample);
            workload_read(sample, slot->block, bytes);
            for (size_t i = 0; i < bytes; i++) {
                wrong_bytes += sample[i] != slot->value;
                checksum = (checksum ^ sample[i]) * 1099511628211u;
            }
            uint64_t start = workload_now_ns();
            if (step < steps + WORKLOAD_SLOTS - leaks)
                workload_free(slot->block);
            memory_ns += workload_now_ns() - start;
            slot->block = NULL;
        }
        if (step >= steps)
            continue;
        /* Small blocks mostly, a few of megabytes. */
        unsigned shift = 9 + (unsigned)(workload_random(&state) % 14);
        slot->bytes = ((size_t)1 << shift) + (size_t)(workload_random(&state) % 4096);
        slot->value = (unsigned char)(step % 251 + 1);
        uint64_t start = workload_now_ns();
        slot->block = workload_alloc(slot->bytes);
        memory_ns += workload_now_ns() - start;
        taken++;
        requested_bytes += slot->bytes;
        workload_fill(slot->block, slot->value, slot->bytes);
    }
    printf("device          %s\n", device_name);
    printf("allocations     %llu\n", (unsigned long long)taken);
    printf("bytes requested %llu\n", (unsigned long long)requested_bytes);
    printf("wrong bytes     %llu\n", (unsigned long long)wrong_bytes);
    printf("checksum        %016llx\n", (unsigned long long)checksum);
    printf("malloc + free   %.2f us a pair\n", (double)memory_ns / 1000 / (double)taken);
    return wrong_bytes == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
