/* Surface objects: names of arrays that kernels would load from and store to. */
#include "memory.h"

#include <stdlib.h>

struct surface_object { /* its address is the CUsurfObject */
    struct sim_node node;
    CUDA_RESOURCE_DESC resource;
};

static struct sim_tree objects; /* sim_memory_lock */

/* sim_memory_lock held. */
static struct surface_object *find(CUsurfObject handle)
{
    struct sim_node *node = sim_tree_find(&objects, handle);

    return node == NULL ? NULL : SIM_CONTAINER(node, struct surface_object, node);
}

/* "resType must be CU_RESOURCE_TYPE_ARRAY and hArray must be set to a valid CUDA array handle.
 * flags must be set to zero." */
static bool is_good(const CUDA_RESOURCE_DESC *resource)
{
    struct sim_surface surface;

    return resource != NULL && resource->resType == CU_RESOURCE_TYPE_ARRAY &&
           resource->flags == 0 && sim_array_surface(resource->res.array.hArray, &surface);
}

SIM_API(cuSurfObjectCreate, (CUsurfObject * pSurfObject, const CUDA_RESOURCE_DESC *pResDesc),
        (pSurfObject, pResDesc), "0x%llx",
        pSurfObject == NULL || sim_result != CUDA_SUCCESS ? 0 : *pSurfObject)
{
    struct surface_object *object;
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (pSurfObject == NULL || !is_good(pResDesc))
        return CUDA_ERROR_INVALID_VALUE;
    object = calloc(1, sizeof *object);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->resource = *pResDesc;
    object->node.start = (uint64_t)(uintptr_t)object;
    object->node.end = object->node.start + 1;
    pthread_mutex_lock(&sim_memory_lock);
    sim_tree_insert(&objects, &object->node);
    pthread_mutex_unlock(&sim_memory_lock);
    *pSurfObject = object->node.start;
    return CUDA_SUCCESS;
}

SIM_API(cuSurfObjectDestroy, (CUsurfObject surfObject), (surfObject), "0x%llx", surfObject)
{
    struct surface_object *object;
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    object = find(surfObject);
    if (object != NULL)
        sim_tree_remove(&objects, &object->node);
    pthread_mutex_unlock(&sim_memory_lock);
    free(object);
    return object == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API(cuSurfObjectGetResourceDesc, (CUDA_RESOURCE_DESC * pResDesc, CUsurfObject surfObject),
        (pResDesc, surfObject), "0x%llx", surfObject)
{
    const struct surface_object *object;
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    object = find(surfObject);
    if (object == NULL || pResDesc == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *pResDesc = object->resource;
    pthread_mutex_unlock(&sim_memory_lock);
    return result;
}
