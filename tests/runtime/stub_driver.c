/* A CUDA driver library without a GPU: device memory is host memory, and a launch prints what it was given. Built by
 * test_bindings.py, to run the real cuda-bindings. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ptr;

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = getenv("STUB_DEVICES") ? atoi(getenv("STUB_DEVICES")) : 1; return 0; }
int cuDeviceGet(int *d, int ordinal) { *d = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int d) { strncpy(name, "Stub GPU", size); return 0; }
int cuDeviceGetAttribute(int *v, int which, int d) {
  *v = which == 75 ? 9 : which == 76 ? 0 : which == 97 ? 232448 : which == 16 ? 132 : 1024;
  return 0;
}
static void *current;
int cuCtxGetCurrent(void **c) { *c = current; return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)0x10; return 0; }
int cuCtxPushCurrent_v2(void *c) { current = c; return 0; }
int cuCtxPopCurrent_v2(void **c) { *c = current; current = 0; return 0; }
int cuMemAlloc_v2(ptr *p, size_t n) { *p = (ptr)aligned_alloc(256, (n + 255) / 256 * 256); return 0; }
int cuMemFree_v2(ptr p) { free((void *)p); return 0; }
int cuMemcpyHtoD_v2(ptr d, const void *h, size_t n) { memcpy((void *)d, h, n); return 0; }
int cuMemcpyDtoH_v2(void *h, ptr d, size_t n) { memcpy(h, (void *)d, n); return 0; }
int cuStreamSynchronize(void *s) { return 0; }
int cuEventCreate(void **e, unsigned f) { *e = (void *)0x30; return 0; }
int cuEventRecord(void *e, void *s) { printf("record %p on %p\n", e, s); return 0; }
int cuStreamWaitEvent(void *s, void *e, unsigned f) { printf("%p waits for %p\n", s, e); return 0; }
int cuEventDestroy_v2(void *e) { return 0; }
int cuPointerGetAttribute(void *out, int which, ptr p) { *(int *)out = 0; return which == 9 ? 0 : 1; }
int cuModuleLoadData(void **m, const void *image) {
  *m = (void *)0x20;
  return memcmp(image, "\177ELF", 4) ? 200 : 0;
}
int cuModuleGetFunction(void **f, void *m, const char *name) { printf("function %s\n", name); *f = (void *)0x21; return 0; }
int cuFuncSetAttribute(void *f, int which, int value) { printf("attribute %d = %d\n", which, value); return 0; }
int cuFuncGetAttribute(int *v, int which, void *f) { *v = which == 0 ? 1024 : 32; return 0; }
int cuGetErrorName(int e, const char **s) { *s = e == 200 ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_STUB"; return 0; }
int cuGetErrorString(int e, const char **s) { *s = "text of the stub"; return 0; }
int cuGetExportTable(const void **table, const void *id) { return 500; } /* NVRTC asks for one */

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **args, void **extra) {
  /* The program of the test: X, Y, a, N in the order that STUB_ORDER tells. */
  const char *order = getenv("STUB_ORDER");
  float *x = 0, *y = 0, a = 0;
  int n = 0;
  for (int i = 0; order[i]; i++) {
    if (order[i] == 'X') x = *(float **)args[i];
    if (order[i] == 'Y') y = *(float **)args[i];
    if (order[i] == 'a') a = *(float *)args[i];
    if (order[i] == 'N') n = *(int *)args[i];
  }
  printf("launch (%u, %u, %u) x (%u, %u, %u), shared %u, stream %p, a = %g, N = %d\n", gx, gy, gz, bx, by, bz, shared,
         stream, a, n);
  for (int i = 0; i < n; i++) y[i] = a * x[i] + y[i];
  return 0;
}

int cuGetProcAddress_v2(const char *symbol, void **out, int version, ptr flags, int *found) {
  char name[128];
  Dl_info here;
  dladdr((void *)cuInit, &here);
  void *self = dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_NOW);
  snprintf(name, sizeof name, "%s_v2", symbol);
  *out = dlsym(self, name);
  if (!*out) *out = dlsym(self, symbol);
  if (found) *found = *out ? 0 : 1;
  return *out ? 0 : 500;
}
