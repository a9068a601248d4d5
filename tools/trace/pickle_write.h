/* Writes a pickle, protocol 2, with the few opcodes that any reader of snapshots knows: whole
 * values one after the other, containers between begin and end. Not checked: keys and values
 * alternate, containers close. Protocol 2 has no frames, so the output streams. */
#ifndef GC_PICKLE_WRITE_H
#define GC_PICKLE_WRITE_H

#include "core/io/writer.h"

#include <stdint.h>

/* Strings and lists that come again are written once, under a number of the caller's. */
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
/* The text of the number, which is always the same for it. */
void pickle_put_word(struct pickle_writer *writer, unsigned number, const char *text);
/* The value kept under the number, if there is one; else false, and after the next whole value it
 * is to be kept. */
bool pickle_recall(struct pickle_writer *writer, unsigned number);
void pickle_keep(struct pickle_writer *writer, unsigned number);

void pickle_begin_dict(struct pickle_writer *writer);
void pickle_end_dict(struct pickle_writer *writer);
void pickle_begin_list(struct pickle_writer *writer);
/* Hands over what was written since: for long lists, which readers else hold on their stack. */
void pickle_flush_list(struct pickle_writer *writer);
void pickle_end_list(struct pickle_writer *writer);
/* A tuple of two numbers. */
void pickle_put_pair(struct pickle_writer *writer, uint64_t first, uint64_t second);

#endif
