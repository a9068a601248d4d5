// The node's GPUs, by NVML, which the driver brings.
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>

struct gpu {
	char uuid[96];
	unsigned long long total_bytes;
	unsigned minor;
};

struct memory {
	unsigned long long total, free, used;
};

static void *library;

static int call0(const char *name)
{
	int (*function)(void);
	*(void **)&function = dlsym(library, name);
	return function == NULL ? -1 : function();
}

// Opens NVML once and keeps it. -1: it is not there; else NVML's status.
static int start(void)
{
	if (library == NULL)
		library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	return library == NULL ? -1 : call0("nvmlInit_v2");
}

static void stop(void)
{
	call0("nvmlShutdown");
}

static int count_gpus(unsigned *count)
{
	int (*function)(unsigned *);
	*(void **)&function = dlsym(library, "nvmlDeviceGetCount_v2");
	return function == NULL ? -1 : function(count);
}

static int read_gpu(unsigned index, struct gpu *gpu)
{
	int (*get_handle)(unsigned, void **);
	int (*get_uuid)(void *, char *, unsigned);
	int (*get_memory)(void *, struct memory *);
	int (*get_minor)(void *, unsigned *);
	struct memory memory;
	void *handle;
	*(void **)&get_handle = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&get_uuid = dlsym(library, "nvmlDeviceGetUUID");
	*(void **)&get_memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
	*(void **)&get_minor = dlsym(library, "nvmlDeviceGetMinorNumber");
	if (get_handle == NULL || get_uuid == NULL || get_memory == NULL)
		return -1;
	int status = get_handle(index, &handle);
	if (status == 0)
		status = get_uuid(handle, gpu->uuid, sizeof(gpu->uuid));
	if (status == 0)
		status = get_memory(handle, &memory);
	gpu->total_bytes = status == 0 ? memory.total : 0;
	gpu->minor = index;
	if (status == 0 && get_minor != NULL)
		(void)get_minor(handle, &gpu->minor);
	return status;
}
*/
import "C"

import "fmt"

// A gpu is one device of the node.
type gpu struct {
	uuid  string
	bytes uint64
	minor uint
}

// listGPUs asks NVML anew each time: a device that fell off the bus is missing or an error.
func listGPUs() ([]gpu, error) {
	if status := C.start(); status != 0 {
		return nil, fmt.Errorf("NVML does not start (libnvidia-ml.so.1, status %d): the driver's libraries are not in this container", int(status))
	}
	defer C.stop()
	var count C.uint
	if status := C.count_gpus(&count); status != 0 {
		return nil, fmt.Errorf("NVML does not count the devices: status %d", int(status))
	}
	var found []gpu
	var fault error // the first
	for i := C.uint(0); i < count; i++ {
		var one C.struct_gpu
		if status := C.read_gpu(i, &one); status != 0 {
			if fault == nil {
				fault = fmt.Errorf("NVML does not read device %d: status %d", uint(i), int(status))
			}
			continue
		}
		found = append(found, gpu{C.GoString(&one.uuid[0]), uint64(one.total_bytes), uint(one.minor)})
	}
	return found, fault
}
