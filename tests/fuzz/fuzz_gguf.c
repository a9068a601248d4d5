/* A GGUF file of anyone's making. It may declare itself the first of two: the second is there. */
#include "tests/fuzz/model_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* split.no 1, split.count 2, split.tensors.count 2, a tensor "v" of 4 floats. */
static const char second[] = "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0"
                             "\10\0\0\0\0\0\0\0split.no\2\0\0\0\1\0"
                             "\13\0\0\0\0\0\0\0split.count\2\0\0\0\2\0"
                             "\23\0\0\0\0\0\0\0split.tensors.count\5\0\0\0\2\0\0\0"
                             "\1\0\0\0\0\0\0\0v\1\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                             "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                             "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (folder[0] == '\0')
        put_file("m-00002-of-00002.gguf", second, sizeof(second));
    put_file("m-00001-of-00002.gguf", data, bytes);
    open_model("m-00001-of-00002.gguf");
    return 0;
}
