/* JSON of anyone's making, by its first byte: a description of tensors, an index of shards, or the
 * config of a folder and alone. */
#include "tests/fuzz/model_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char shard[] = "\x36\0\0\0\0\0\0\0"
                            "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
                            "\0\0\0\0\0\0\0";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (folder[0] == '\0') {
        put_file("a.safetensors", shard, sizeof(shard));
        open_model("a.safetensors");
    }
    if (data[0] == 'c') {
        put_file("config.json", data + 1, bytes - 1);
        open_model("");
        open_model("a.safetensors");
        put_file("config.json", "{}", 2);
        put_file("alone.json", data + 1, bytes - 1);
        open_model("alone.json");
    } else if (data[0] == 'i') {
        put_file("i.json", data + 1, bytes - 1);
        open_model("i.json");
    } else {
        put_file("t.json", data + 1, bytes - 1);
        open_model("t.json");
    }
    return 0;
}
