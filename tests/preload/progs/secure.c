/* link: -l:libcuda.so.1 */
/* Allocates and frees; linked with the library by the test that runs it with raised privileges. */
#include "program.h"

int main(void)
{
    program_start();
    program_alloc(1 << 20);
    printf("allocated\n");
    return EXIT_SUCCESS;
}
