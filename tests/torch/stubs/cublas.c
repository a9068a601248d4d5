/* cuBLAS without arithmetic (touch.h): handles, and products of matrices and vectors. The
 * signatures are those of NVIDIA's cuBLAS manual. */
#include "touch.h"

#include <stdlib.h>

#define ALLOC_FAILED 3

struct cublasContext {
    void *stream;
    int math_mode;
    int pointer_mode;
};
typedef struct cublasContext *handle_t;

int cublasCreate_v2(handle_t *handle);
int cublasDestroy_v2(handle_t handle);
int cublasSetStream_v2(handle_t handle, void *stream);
int cublasSetMathMode(handle_t handle, int mode);
int cublasGetMathMode(handle_t handle, int *mode);
int cublasSetPointerMode_v2(handle_t handle, int mode);
int cublasGetPointerMode_v2(handle_t handle, int *mode);

int cublasCreate_v2(handle_t *handle)
{
    *handle = calloc(1, sizeof(**handle));
    return *handle ? 0 : ALLOC_FAILED;
}

int cublasDestroy_v2(handle_t handle)
{
    free(handle);
    return 0;
}

int cublasSetStream_v2(handle_t handle, void *stream)
{
    handle->stream = stream;
    return 0;
}

int cublasSetMathMode(handle_t handle, int mode)
{
    handle->math_mode = mode;
    return 0;
}

int cublasGetMathMode(handle_t handle, int *mode)
{
    *mode = handle->math_mode;
    return 0;
}

int cublasSetPointerMode_v2(handle_t handle, int mode)
{
    handle->pointer_mode = mode;
    return 0;
}

int cublasGetPointerMode_v2(handle_t handle, int *mode)
{
    *mode = handle->pointer_mode;
    return 0;
}

/* ---- products of matrices: C is m by n; A has m by k elements and B k by n, transposed or not
 * ---- */

struct matrix {
    const void *at;
    size_t element;
    int leading;
};

static int product(handle_t handle, int a_turned, int b_turned, int m, int n, int k,
                   struct matrix a, struct matrix b, struct matrix c)
{
    size_t a_bytes = a_turned ? touch_matrix(k, m, a.leading, a.element)
                              : touch_matrix(m, k, a.leading, a.element);
    size_t b_bytes = b_turned ? touch_matrix(n, k, b.leading, b.element)
                              : touch_matrix(k, n, b.leading, b.element);

    /* A matrix with gaps between its columns is not filled as a whole: others own the gaps. */
    if (c.leading == m || n == 1)
        return touch((void *)(uintptr_t)c.at, touch_matrix(m, n, c.leading, c.element), a.at,
                     a_bytes, b.at, b_bytes, handle->stream);
    for (int column = 0; column < n; column++) {
        char *at = (char *)(uintptr_t)c.at + (size_t)column * (size_t)c.leading * c.element;
        int error = touch(at, (size_t)m * c.element, a.at, a_bytes, b.at, b_bytes, handle->stream);

        if (error)
            return error;
    }
    return 0;
}

static int products(handle_t handle, int a_turned, int b_turned, int m, int n, int k,
                    struct matrix a, long long a_step, struct matrix b, long long b_step,
                    struct matrix c, long long c_step, int count)
{
    int error = 0;

    for (int i = 0; i < count && !error; i++) {
        error = product(handle, a_turned, b_turned, m, n, k, a, b, c);
        a.at = (const char *)a.at + a_step * (long long)a.element;
        b.at = (const char *)b.at + b_step * (long long)b.element;
        c.at = (const char *)c.at + c_step * (long long)c.element;
    }
    return error;
}

#define M(pointer, bytes, leading) ((struct matrix){pointer, bytes, leading})

#define GEMM(name, strided, element)                                                               \
    int name(handle_t handle, int a_turned, int b_turned, int m, int n, int k, const void *alpha,  \
             const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc);  \
    int name(handle_t handle, int a_turned, int b_turned, int m, int n, int k, const void *alpha,  \
             const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc)   \
    {                                                                                              \
        (void)alpha, (void)beta;                                                                   \
        return product(handle, a_turned, b_turned, m, n, k, M(a, element, lda),                    \
                       M(b, element, ldb), M(c, element, ldc));                                    \
    }                                                                                              \
    int strided(handle_t handle, int a_turned, int b_turned, int m, int n, int k,                  \
                const void *alpha, const void *a, int lda, long long a_step, const void *b,        \
                int ldb, long long b_step, const void *beta, void *c, int ldc, long long c_step,   \
                int count);                                                                        \
    int strided(handle_t handle, int a_turned, int b_turned, int m, int n, int k,                  \
                const void *alpha, const void *a, int lda, long long a_step, const void *b,        \
                int ldb, long long b_step, const void *beta, void *c, int ldc, long long c_step,   \
                int count)                                                                         \
    {                                                                                              \
        (void)alpha, (void)beta;                                                                   \
        return products(handle, a_turned, b_turned, m, n, k, M(a, element, lda), a_step,           \
                        M(b, element, ldb), b_step, M(c, element, ldc), c_step, count);            \
    }
GEMM(cublasSgemm_v2, cublasSgemmStridedBatched, 4)
GEMM(cublasDgemm_v2, cublasDgemmStridedBatched, 8)
GEMM(cublasCgemm_v2, cublasCgemmStridedBatched, 8)
GEMM(cublasZgemm_v2, cublasZgemmStridedBatched, 16)

int cublasGemmEx(handle_t handle, int a_turned, int b_turned, int m, int n, int k,
                 const void *alpha, const void *a, int a_type, int lda, const void *b, int b_type,
                 int ldb, const void *beta, void *c, int c_type, int ldc, int compute,
                 int algorithm);
int cublasGemmEx(handle_t handle, int a_turned, int b_turned, int m, int n, int k,
                 const void *alpha, const void *a, int a_type, int lda, const void *b, int b_type,
                 int ldb, const void *beta, void *c, int c_type, int ldc, int compute,
                 int algorithm)
{
    (void)alpha, (void)beta, (void)compute, (void)algorithm;
    return product(handle, a_turned, b_turned, m, n, k, M(a, touch_element(a_type), lda),
                   M(b, touch_element(b_type), ldb), M(c, touch_element(c_type), ldc));
}

int cublasGemmStridedBatchedEx(handle_t handle, int a_turned, int b_turned, int m, int n, int k,
                               const void *alpha, const void *a, int a_type, int lda,
                               long long a_step, const void *b, int b_type, int ldb,
                               long long b_step, const void *beta, void *c, int c_type, int ldc,
                               long long c_step, int count, int compute, int algorithm);
int cublasGemmStridedBatchedEx(handle_t handle, int a_turned, int b_turned, int m, int n, int k,
                               const void *alpha, const void *a, int a_type, int lda,
                               long long a_step, const void *b, int b_type, int ldb,
                               long long b_step, const void *beta, void *c, int c_type, int ldc,
                               long long c_step, int count, int compute, int algorithm)
{
    (void)alpha, (void)beta, (void)compute, (void)algorithm;
    return products(handle, a_turned, b_turned, m, n, k, M(a, touch_element(a_type), lda), a_step,
                    M(b, touch_element(b_type), ldb), b_step, M(c, touch_element(c_type), ldc),
                    c_step, count);
}

/* ---- a matrix and a vector, two vectors; only vectors without gaps are touched ---- */

#define GEMV(name, element)                                                                        \
    int name(handle_t handle, int turned, int m, int n, const void *alpha, const void *a, int lda, \
             const void *x, int incx, const void *beta, void *y, int incy);                        \
    int name(handle_t handle, int turned, int m, int n, const void *alpha, const void *a, int lda, \
             const void *x, int incx, const void *beta, void *y, int incy)                         \
    {                                                                                              \
        size_t to = (size_t)(turned ? n : m), from = (size_t)(turned ? m : n);                     \
                                                                                                   \
        (void)alpha, (void)beta;                                                                   \
        if (incx != 1 || incy != 1)                                                                \
            return 0;                                                                              \
        return touch(y, to * (element), a, touch_matrix(m, n, lda, element), x, from * (element),  \
                     handle->stream);                                                              \
    }
GEMV(cublasSgemv_v2, 4)
GEMV(cublasDgemv_v2, 8)

#define DOT(name, element)                                                                         \
    int name(handle_t handle, int n, const void *x, int incx, const void *y, int incy,             \
             void *result);                                                                        \
    int name(handle_t handle, int n, const void *x, int incx, const void *y, int incy,             \
             void *result)                                                                         \
    {                                                                                              \
        if (n < 1 || incx != 1 || incy != 1)                                                       \
            return 0;                                                                              \
        return touch(result, element, x, element, y, element, handle->stream);                     \
    }
DOT(cublasSdot_v2, 4)
DOT(cublasDdot_v2, 8)
