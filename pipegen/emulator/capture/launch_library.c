/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch library: stands in for the CUDA runtime behind the host half of a CuTe DSL kernel.
 *
 * The DSL links the host half of a compiled kernel with a runtime library whose exported names are
 * those of the CUDA runtime with an underscore before. This one has no device: it answers the
 * questions that the host half asks, and hands each launch to the Python side, which reads the
 * parameters while the host half waits. Needs a C compiler and nothing else.
 *
 * Numbers (error codes, the layout of cudaLaunchConfig_t) are those of the CUDA runtime API.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_SUPPORTED = 801, /* nobody listens, or a question that nobody can answer */
};

/* A loaded module: where its image (an ELF file) starts in memory. */
struct library {
    const void *image;
    struct kernel *kernels;
};

/* A kernel of a library. Freed with it. */
struct kernel {
    const void *image;
    char *name;
    struct kernel *next;
};

struct dim3 {
    uint32_t x, y, z;
};

/* cudaLaunchConfig_t: 56 bytes, with the natural padding of a 64-bit ABI. */
struct config {
    struct dim3 grid, block;
    uint64_t smem_bytes;
    void *stream;
    const void *attributes; /* 72 bytes each: a 32-bit id, padding, 64 bytes of value */
    uint32_t attribute_count;
};

/* What the Python side does with a launch; returns a cudaError_t. The pointers are valid until it
 * returns. args[i] points at the i-th parameter's bytes. */
typedef int32_t (*launch_handler)(const void *image, const char *name, const struct config *config,
                                  void **args);
/* A property of the emulated device (image NULL) or of a kernel, by its CUDA number. Returns a
 * cudaError_t. */
typedef int32_t (*attribute_handler)(const void *image, int32_t attribute, int32_t *value);

static launch_handler on_launch;
static attribute_handler on_attribute;

/* Both NULL: nobody listens, and each call below that matters fails. */
void pipegen_listen(launch_handler launch, attribute_handler attribute)
{
    on_launch = launch;
    on_attribute = attribute;
}

const char *_cudaGetErrorName(int32_t error);

int32_t _cudaLibraryLoadData(struct library **library, const void *image)
{
    /* The further parameters are options of the JIT compiler; an image needs none. */
    if (on_launch == NULL)
        return NOT_SUPPORTED;
    *library = calloc(1, sizeof **library);
    if (*library == NULL)
        return OUT_OF_MEMORY;
    (*library)->image = image;
    return SUCCESS;
}

int32_t _cudaLibraryUnload(struct library *library)
{
    if (library == NULL)
        return INVALID_VALUE;
    for (struct kernel *kernel = library->kernels; kernel != NULL;) {
        struct kernel *next = kernel->next;
        free(kernel->name);
        free(kernel);
        kernel = next;
    }
    free(library);
    return SUCCESS;
}

int32_t _cudaLibraryGetKernel(struct kernel **kernel, struct library *library, const char *name)
{
    if (library == NULL || name == NULL)
        return INVALID_VALUE;
    struct kernel *made = malloc(sizeof *made);
    char *copy = strdup(name);
    if (made == NULL || copy == NULL) {
        free(made);
        free(copy);
        return OUT_OF_MEMORY;
    }
    *made = (struct kernel){library->image, copy, library->kernels};
    library->kernels = made;
    *kernel = made;
    return SUCCESS;
}

int32_t _cudaLaunchKernelEx(const struct config *config, const struct kernel *kernel, void **args)
{
    if (config == NULL || kernel == NULL)
        return INVALID_VALUE;
    if (on_launch == NULL)
        return NOT_SUPPORTED;
    return on_launch(kernel->image, kernel->name, config, args);
}

/* A launch without attributes. The host half passes the extents one by one, not as two dim3. */
int32_t _cudaLaunchKernel(const struct kernel *kernel, uint32_t grid_x, uint32_t grid_y,
                          uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z,
                          void **args, uint64_t smem_bytes, void *stream)
{
    struct config config = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, smem_bytes, stream, NULL, 0};
    return _cudaLaunchKernelEx(&config, kernel, args);
}

/* ---- Host code that is called through TVM FFI ----------------------------------------------------
 *
 * It loads its module itself, at its first call, by two functions that the compiler made for it. */

int32_t cuda_dialect_init_library_once(struct library **library,
                                       int32_t (*load)(struct library **),
                                       int32_t (*load_to_device)(struct library **, int32_t),
                                       void (*raise)(const char *kind, const char *message))
{
    if (*library != NULL)
        return SUCCESS;
    struct library *loaded = NULL;
    int32_t error = load(&loaded);
    if (error == SUCCESS && load_to_device != NULL)
        error = load_to_device(&loaded, 0);
    if (error == SUCCESS)
        *library = loaded;
    else
        raise("RuntimeError", "the launch library could not load a module: nobody listens");
    return error;
}

void cuda_dialect_unload_library_once(struct library **library)
{
    _cudaLibraryUnload(*library);
    *library = NULL;
}

void CuteDSLRT_TVMFFISetRaisedCudaError(void (*raise)(const char *kind, const char **parts,
                                                      int32_t count),
                                        int32_t error)
{
    const char *parts[] = {"the launch failed: ", _cudaGetErrorName(error)};
    raise("RuntimeError", parts, 2);
}

/* ---- Questions about the device ---------------------------------------------------------------- */

int32_t _cudaGetDevice(int32_t *device)
{
    *device = 0;
    return SUCCESS;
}

int32_t _cudaGetDeviceCount(int32_t *count)
{
    *count = 1;
    return SUCCESS;
}

int32_t _cudaSetDevice(int32_t device)
{
    return device == 0 ? SUCCESS : INVALID_VALUE;
}

int32_t _cuDeviceGet(int32_t *device, int32_t ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? SUCCESS : INVALID_VALUE;
}

int32_t _cudaDeviceGetAttribute(int32_t *value, int32_t attribute, int32_t device)
{
    (void)device;
    return on_attribute == NULL ? NOT_SUPPORTED : on_attribute(NULL, attribute, value);
}

int32_t _cuKernelGetAttribute(int32_t *value, int32_t attribute, struct kernel *kernel,
                              int32_t device)
{
    (void)device;
    if (kernel == NULL)
        return INVALID_VALUE;
    return on_attribute == NULL ? NOT_SUPPORTED : on_attribute(kernel->image, attribute, value);
}

int32_t _cudaOccupancyMaxActiveBlocksPerMultiprocessor(int32_t *blocks, const void *kernel,
                                                       int32_t threads, uint64_t smem_bytes)
{
    (void)kernel, (void)threads, (void)smem_bytes;
    *blocks = 1;
    return SUCCESS;
}

/* ---- What a CPU has nothing to do for ----------------------------------------------------------- */

int32_t _cudaFuncSetAttribute(const void *kernel, int32_t attribute, int32_t value)
{
    (void)kernel, (void)attribute, (void)value;
    return SUCCESS;
}

int32_t _cudaKernelSetAttributeForDevice(const void *kernel, int32_t attribute, int32_t value,
                                         int32_t device)
{
    (void)kernel, (void)attribute, (void)value, (void)device;
    return SUCCESS;
}

/* A launch ends before it returns: there is nothing to wait for. */
int32_t _cudaDeviceSynchronize(void)
{
    return SUCCESS;
}

int32_t _cudaStreamSynchronize(void *stream)
{
    (void)stream;
    return SUCCESS;
}

/* Launches run at once and in order, and so do these. */
int32_t _cudaMemcpy(void *to, const void *from, uint64_t count, int32_t kind)
{
    (void)kind;
    memcpy(to, from, count);
    return SUCCESS;
}

int32_t _cudaMemcpyAsync(void *to, const void *from, uint64_t count, int32_t kind, void *stream)
{
    (void)stream;
    return _cudaMemcpy(to, from, count, kind);
}

int32_t _cudaMemset(void *to, int32_t value, uint64_t count)
{
    memset(to, value, count);
    return SUCCESS;
}

int32_t _cudaMemsetAsync(void *to, int32_t value, uint64_t count, void *stream)
{
    (void)stream;
    return _cudaMemset(to, value, count);
}

const char *_cudaGetErrorName(int32_t error)
{
    switch (error) {
    case SUCCESS:
        return "cudaSuccess";
    case INVALID_VALUE:
        return "cudaErrorInvalidValue";
    case OUT_OF_MEMORY:
        return "cudaErrorMemoryAllocation";
    case NOT_SUPPORTED:
        return "cudaErrorNotSupported";
    default:
        return "cudaErrorUnknown";
    }
}

const char *_cudaGetErrorString(int32_t error)
{
    return _cudaGetErrorName(error);
}
