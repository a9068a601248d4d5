/* Writes a pickle, protocol 2, with the few opcodes that every reader of snapshots knows: values
 * one after the other, containers between begin and end. The caller ensures that keys and values
 * alternate and that containers are closed. Protocol 2 has no frames, so the output streams. */
#ifndef GC_PICKLE_WRITE_H
#define GC_PICKLE_WRITE_H

#include "core/io/writer.h"

#include <stdint.h>

/* Repeated strings and lists are written once, under a memo number of the caller's. */
#define PICKLE_MEMO_MAX 1024

struct pickle_writer {
    struct gc_writer *out;
    bool is_kept[PICKLE_MEMO_MAX];
};

void pickle_begin(struct pickle_writer *writer, struct gc_writer *out);
void pickle_end(struct pickle_writer *writer);

void pickle_put_int(struct pickle_writer *writer, uint64_t value);
void pickle_put_bool(struct pickle_writer *writer, bool value);
void pickle_put_text(struct pickle_writer *writer, const char *text);
/* Writes `text`, stored in the memo under `number`: always the same text for a number. */
void pickle_put_word(struct pickle_writer *writer, unsigned number, const char *text);
/* True: wrote the value stored under the number. False: no value is stored; write the value, then
 * store it by pickle_keep. */
bool pickle_recall(struct pickle_writer *writer, unsigned number);
void pickle_keep(struct pickle_writer *writer, unsigned number);

void pickle_begin_dict(struct pickle_writer *writer);
void pickle_end_dict(struct pickle_writer *writer);
void pickle_begin_list(struct pickle_writer *writer);
/* Appends the pending elements to the list, so that readers need not hold all of a long list on
 * their stack. */
void pickle_flush_list(struct pickle_writer *writer);
void pickle_end_list(struct pickle_writer *writer);
/* A tuple of two numbers. */
void pickle_put_pair(struct pickle_writer *writer, uint64_t first, uint64_t second);

#endif
