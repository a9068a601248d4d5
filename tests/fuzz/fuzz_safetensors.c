/* A safetensors file of anyone's making. */
#include "tests/fuzz/model_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    put_file("model.safetensors", data, bytes);
    open_model("model.safetensors");
    return 0;
}
