/* PyTorch's stand-in of cuDNN, and the version as XLA asks for it. */
#include "../../torch/stubs/cudnn.c"

int cudnnGetProperty(int property, int *value);
int cudnnGetProperty(int property, int *value)
{
    int version = (int)cudnnGetVersion();

    *value = property == 0 ? version / 10000 : property == 1 ? version / 100 % 100 : version % 100;
    return 0;
}
