/* cuBLASLt without arithmetic (touch.h): layouts of matrices, one algorithm, and the product. */
#include "touch.h"

#include <stdlib.h>
#include <string.h>

#define ALLOC_FAILED 3

struct layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
};

struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

int cublasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows, uint64_t columns,
                               int64_t leading);
int cublasLtMatrixLayoutDestroy(struct layout *layout);
int cublasLtMatmulDescCreate(void **description, int compute, int scale);
int cublasLtMatmulDescDestroy(void *description);
int cublasLtMatmulPreferenceCreate(void **preference);
int cublasLtMatmulPreferenceDestroy(void *preference);
size_t cublasLtGetVersion(void);
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, struct layout *a,
                                   struct layout *b, struct layout *c, struct layout *d,
                                   void *preference, int room, struct heuristic *results,
                                   int *count);
int cublasLtMatmul(void *handle, void *description, const void *alpha, const void *a,
                   struct layout *a_layout, const void *b, struct layout *b_layout,
                   const void *beta, const void *c, struct layout *c_layout, void *d,
                   struct layout *d_layout, const void *algorithm, void *workspace, size_t bytes,
                   void *stream);

int cublasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows, uint64_t columns,
                               int64_t leading)
{
    *layout = malloc(sizeof(**layout));
    if (!*layout)
        return ALLOC_FAILED;
    **layout = (struct layout){type, rows, columns, leading};
    return 0;
}

int cublasLtMatrixLayoutDestroy(struct layout *layout)
{
    free(layout);
    return 0;
}

/* Nothing of them is read again: each is a byte, so that it has an address. */
static int create(void **object)
{
    *object = calloc(1, 1);
    return *object ? 0 : ALLOC_FAILED;
}

int cublasLtMatmulDescCreate(void **description, int compute, int scale)
{
    (void)compute, (void)scale;
    return create(description);
}

int cublasLtMatmulDescDestroy(void *description)
{
    free(description);
    return 0;
}

int cublasLtMatmulPreferenceCreate(void **preference)
{
    return create(preference);
}

int cublasLtMatmulPreferenceDestroy(void *preference)
{
    free(preference);
    return 0;
}

size_t cublasLtGetVersion(void)
{
    return 130002;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, struct layout *a,
                                   struct layout *b, struct layout *c, struct layout *d,
                                   void *preference, int room, struct heuristic *results,
                                   int *count)
{
    (void)handle, (void)description, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *count = room > 0;
    if (room > 0)
        memset(results, 0, sizeof(*results));
    return 0;
}

static size_t extent(const struct layout *layout)
{
    return touch_matrix((long)layout->rows, (long)layout->columns, (long)layout->leading,
                        touch_element(layout->type));
}

int cublasLtMatmul(void *handle, void *description, const void *alpha, const void *a,
                   struct layout *a_layout, const void *b, struct layout *b_layout,
                   const void *beta, const void *c, struct layout *c_layout, void *d,
                   struct layout *d_layout, const void *algorithm, void *workspace, size_t bytes,
                   void *stream)
{
    int error = bytes && workspace ? cudaMemsetAsync(workspace, FILL, 1, stream) : 0;

    (void)handle, (void)description, (void)alpha, (void)beta, (void)c, (void)c_layout;
    (void)algorithm;
    if (error)
        return error;
    return touch(d, extent(d_layout), a, extent(a_layout), b, extent(b_layout), stream);
}
