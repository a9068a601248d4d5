#define _GNU_SOURCE
#include "core/config/tenant_rules.h"

#include "core/config/size.h"
#include "core/io/text.h"

#include <string.h>

#define SIZE_TEXT_BYTES 64

bool gc_tenant_rules_is_name(const char *text, size_t length)
{
    if (length == 0 || length >= GC_OPTION_NAME_BYTES || text[0] == '.')
        return false;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                           (c >= 'a' && c <= 'z') || c == '.' || c == '_' || c == '-';
        if (!plain)
            return false;
    }
    return true;
}

/* Returns the name's index; a new name is added. -1: the name has another size already. */
static int find_name(struct gc_tenant_rules *rules, const char *text, size_t length, uint64_t bytes)
{
    for (uint32_t i = 0; i < rules->name_count; i++) {
        const char *known = rules->names[i].text;
        if (strncmp(known, text, length) == 0 && known[length] == '\0')
            return rules->names[i].limit_bytes == bytes ? (int)i : -1;
    }
    const uint32_t added = rules->name_count++;
    (void)gc_text_copy(rules->names[added].text, GC_OPTION_NAME_BYTES, text, length);
    rules->names[added].limit_bytes = bytes;
    return (int)added;
}

static bool is_size(const char *text, size_t length)
{
    char size[SIZE_TEXT_BYTES];
    uint64_t bytes;
    return gc_text_copy(size, sizeof(size), text, length) && gc_size_parse(size, &bytes) == GC_OK;
}

/* Rejects mistakes that would leave an object without a limit: a pattern, two entries joined by
 * ';', a second size, a blank at either end. */
static bool is_object(const char *text, size_t length)
{
    const char *colon = memrchr(text, ':', length);
    if (length == 1 && text[0] == '*')
        return true;
    return memchr(text, '*', length) == NULL && memchr(text, ';', length) == NULL &&
           strchr(" \t", text[0]) == NULL && strchr(" \t", text[length - 1]) == NULL &&
           (colon == NULL || !is_size(colon + 1, length - (size_t)(colon + 1 - text)));
}

/* Whether an earlier entry matches every path that this object could have. */
static bool is_taken(const struct gc_tenant_rules *rules, const char *object, size_t length)
{
    for (uint32_t i = 0; i < rules->rule_count; i++) {
        const struct gc_tenant_rule *rule = &rules->rules[i];
        if ((rule->object_length == 1 && rule->object[0] == '*') ||
            (rule->object_length == length && memcmp(rule->object, object, length) == 0))
            return true;
    }
    return false;
}

/* name=object:size; the last ':' ends the object's name. */
static bool add_rule(struct gc_tenant_rules *rules, const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    char size[SIZE_TEXT_BYTES];
    uint64_t bytes;
    if (rules->rule_count == GC_TENANT_RULE_MAX || equals == NULL ||
        !gc_tenant_rules_is_name(text, (size_t)(equals - text)))
        return false;
    const char *object = equals + 1;
    const size_t rest = length - (size_t)(object - text);
    const char *colon = rest == 0 ? NULL : memrchr(object, ':', rest);
    if (colon == NULL || colon == object ||
        !gc_text_copy(size, sizeof(size), colon + 1, rest - (size_t)(colon - object) - 1) ||
        gc_size_parse(size, &bytes) != GC_OK)
        return false;
    const size_t object_length = (size_t)(colon - object);
    if (!is_object(object, object_length) || is_taken(rules, object, object_length))
        return false;
    const int name = find_name(rules, text, (size_t)(equals - text), bytes);
    if (name < 0)
        return false;
    rules->rules[rules->rule_count++] =
        (struct gc_tenant_rule){object, object_length, (uint32_t)name};
    return true;
}

enum gc_status gc_tenant_rules_parse(const char *text, struct gc_tenant_rules *rules)
{
    memset(rules, 0, sizeof(*rules));
    for (;;) {
        const size_t length = strcspn(text, ",");
        if (!add_rule(rules, text, length))
            return GC_FORMAT;
        if (text[length] == '\0')
            return GC_OK;
        text += length + 1;
    }
}

/* ".1", ".1.2": the version after the name of a shared object. */
static bool is_version(const char *text)
{
    while (*text == '.') {
        const size_t digits = strspn(text + 1, "0123456789");
        if (digits == 0)
            return false;
        text += 1 + digits;
    }
    return *text == '\0';
}

static bool is_shared_object(const struct gc_tenant_rule *rule)
{
    return memmem(rule->object, rule->object_length, ".so", 3) != NULL;
}

static bool matches(const struct gc_tenant_rule *rule, const char *path)
{
    const char *slash = strrchr(path, '/');
    const bool is_path = memchr(rule->object, '/', rule->object_length) != NULL;
    const char *name = slash == NULL || is_path ? path : slash + 1;
    if (rule->object_length == 1 && rule->object[0] == '*')
        return true;
    if (strncmp(name, rule->object, rule->object_length) != 0)
        return false;
    const char *rest = name + rule->object_length;
    return *rest == '\0' || (is_shared_object(rule) && is_version(rest));
}

int gc_tenant_rules_match(const struct gc_tenant_rules *rules, const char *path)
{
    for (uint32_t i = 0; i < rules->rule_count; i++)
        if (matches(&rules->rules[i], path))
            return (int)rules->rules[i].name;
    return -1;
}
