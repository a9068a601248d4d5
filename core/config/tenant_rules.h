/* GPUCACHE_TENANTS: which tenant an allocation is for, by the shared object that asked for it.
 *
 * A value is a list of name=object:size. The first entry whose object matches decides; `*` matches
 * what no entry before it does. An object matches by the last component of the path it was loaded
 * from, or by all of the path where the entry has a '/': exactly, or with the numbers of a version
 * behind it: libllama.so matches libllama.so.1.
 * Entries of one name are one tenant and have one size, its limit. */
#ifndef GC_TENANT_RULES_H
#define GC_TENANT_RULES_H

#include "core/config/options.h"

#define GC_TENANT_RULE_MAX 64

struct gc_tenant_rule {
    const char *object; /* in the text; not closed by NUL */
    size_t object_length;
    uint32_t name; /* index */
};

struct gc_tenant_rules {
    uint32_t rule_count;
    uint32_t name_count;
    struct gc_tenant_rule rules[GC_TENANT_RULE_MAX];
    struct {
        char text[GC_OPTION_NAME_BYTES];
        uint64_t limit_bytes;
    } names[GC_TENANT_RULE_MAX];
};

/* `text` is borrowed and must live as long as the rules. GC_FORMAT: it is no such list, two sizes
 * of one name differ, an entry is never reached for one before it, or there are more than
 * GC_TENANT_RULE_MAX entries. */
enum gc_status gc_tenant_rules_parse(const char *text, struct gc_tenant_rules *rules) GC_CHECKED;

/* The name's index for an object loaded from `path`; "": code that belongs to no object. -1: no
 * entry matches. */
int gc_tenant_rules_match(const struct gc_tenant_rules *rules, const char *path);

/* Whether it may name a tenant: letters, digits, '.', '_' and '-', no '.' at its start. */
bool gc_tenant_rules_is_name(const char *text, size_t length);

#endif
