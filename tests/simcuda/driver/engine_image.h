/* Code images, see engine_image.c. */
#ifndef SIM_ENGINE_IMAGE_H
#define SIM_ENGINE_IMAGE_H

#include "tests/simcuda/driver/engine.h"

struct sim_image {
    enum { IMAGE_PTX, IMAGE_ELF, IMAGE_FATBIN } kind;
    char *data; /* a copy, ended by a zero */
    size_t bytes;
};

/* Copies an image. CUDA_ERROR_INVALID_IMAGE if it is none, INVALID_VALUE for NULL, FILE_NOT_FOUND.
 */
CUresult image_load(struct sim_image *image, const void *data);
CUresult image_load_file(struct sim_image *image, const char *path);
void image_free(struct sim_image *image);
bool image_has_function(const struct sim_image *image, const char *name);
/* Bytes of a thread's local memory that the kernel needs, by the image's PTX; 0 where it cannot be
 * read. */
uint64_t image_local_bytes(const struct sim_image *image, const char *kernel);
/* Whether the image has these letters anywhere: a function of the device that it calls. */
bool image_names(const struct sim_image *image, const char *name);
uint64_t image_variable_bytes(const struct sim_image *image, const char *name); /* 0: not in it */

#endif
