/* An ONNX file of anyone's making. */
#include "tests/fuzz/model_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    put_file("model.onnx", data, bytes);
    open_model("model.onnx");
    return 0;
}
