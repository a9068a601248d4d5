/* A library that names the driver. Loaded with RTLD_DEEPBIND it reaches the driver past every
 * preload, so a preloaded library must take it that work is submitted unseen (fences.c). */
extern const char *const gpu_aside_driver;
__attribute__((visibility("default"))) const char *const gpu_aside_driver = "libcuda.so.1";
