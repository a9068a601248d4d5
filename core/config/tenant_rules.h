/* GPUCACHE_TENANTS: maps an allocation to a tenant by the shared object that requested it.
 *
 * A value is a list of name=object:size. The first entry whose object matches decides; `*` matches
 * everything. An object matches by the last component of the path it was loaded from, or by the
 * whole path if the entry has a '/'. The match is exact, or with a version number added:
 * libllama.so matches libllama.so.1. Entries of one name are one tenant; they have one size, the
 * tenant's limit. */
#ifndef GC_TENANT_RULES_H
#define GC_TENANT_RULES_H

#include "core/config/options.h"

#define GC_TENANT_RULE_MAX 64

struct gc_tenant_rule {
    const char *object; /* points into the text; does not end with NUL */
    size_t object_length;
    uint32_t name; /* index into `names` */
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
 * of one name differ, an earlier entry hides a later one, or there are more than GC_TENANT_RULE_MAX
 * entries. */
enum gc_status gc_tenant_rules_parse(const char *text, struct gc_tenant_rules *rules) GC_CHECKED;

/* Returns the name's index for an object loaded from `path`; "" is code that belongs to no object.
 * -1: no entry matches. */
int gc_tenant_rules_match(const struct gc_tenant_rules *rules, const char *path);

/* Whether the text is a valid tenant name: letters, digits, '.', '_' and '-', no '.' at its
 * start. */
bool gc_tenant_rules_is_name(const char *text, size_t length);

#endif
