/* JSON as a flat list of keys and values; struct gc_meta_value has the layout. */
#ifndef GC_READER_JSON_META_H
#define GC_READER_JSON_META_H

#include "core/reader/json_reader.h"

#define GC_META_ITEMS_MAX 4096      /* kept of an array; further ones are counted */
#define GC_META_TEXT_MAX (16 << 10) /* bytes kept of a text */

/* Reads the next value, which must be an object. Its members are added to the reader's metas under
 * "prefix.key", or "key" if there is no prefix (NULL). A duplicate key is GC_FORMAT. With keep
 * false the object is checked and dropped. */
enum gc_status gc_json_meta_read(struct gc_json_reader *json, const char *prefix,
                                 bool keep) GC_CHECKED;

#endif
