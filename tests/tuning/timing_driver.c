/* The stub driver of tests/runtime with a clock: streams, events, captured graphs. A launch of g blocks takes g
 * microseconds, and 100 more below 4 blocks, so that the best grid has 4. */
#define _GNU_SOURCE
#include <stdio.h>
#define printf(...) 0
#define cuLaunchKernel run_now
#define cuEventCreate stub_event_create
#define cuEventRecord stub_event_record
#include "../runtime/stub_driver.c"
#undef cuLaunchKernel
#undef cuEventCreate
#undef cuEventRecord

static double now; /* microseconds */
static struct launch { unsigned blocks; float *x, *y; float a; int n; } *recorded;
static int count, capturing;

static void simulate(struct launch l) {
  now += l.blocks < 4 ? 100 + l.blocks : l.blocks;
  for (int i = 0; i < l.n; i++) l.y[i] = l.a * l.x[i] + l.y[i];
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **args, void **extra) {
  const char *order = getenv("STUB_ORDER");
  struct launch l = {gx};
  for (int i = 0; order[i]; i++) {
    if (order[i] == 'X') l.x = *(float **)args[i];
    if (order[i] == 'Y') l.y = *(float **)args[i];
    if (order[i] == 'a') l.a = *(float *)args[i];
    if (order[i] == 'N') l.n = *(int *)args[i];
  }
  if (stream != (void *)0x77 && stream != (void *)2) return 1; /* the search's stream, or the caller's */
  if (capturing) recorded[count++] = l;
  else simulate(l);
  return 0;
}

int cuStreamCreate(void **s, unsigned flags) { *s = (void *)0x77; return flags == 1 ? 0 : 1; }
int cuStreamDestroy_v2(void *s) { return s == (void *)0x77 ? 0 : 1; }
int cuStreamQuery(void *s) { static int asked; return s != (void *)0x77 ? 1 : ++asked % 3 == 0 ? 600 : 0; }
int cuEventCreate(void **e, unsigned f) { *e = calloc(1, sizeof(double)); return 0; }
int cuEventRecord(void *e, void *s) { *(double *)e = now; return s == (void *)0x77 ? 0 : 1; }
int cuEventElapsedTime(float *ms, void *first, void *last) {
  *ms = (*(double *)last - *(double *)first) * 1e-3;
  return 0;
}
int cuMemsetD8Async(ptr p, unsigned char v, size_t n, void *s) { memset((void *)p, v, n); return 0; }
int cuMemcpyDtoDAsync_v2(ptr d, ptr s, size_t n, void *stream) { memcpy((void *)d, (void *)s, n); return 0; }
int cuModuleUnload(void *m) { return m == (void *)0x20 ? 0 : 1; }
int cuStreamBeginCapture_v2(void *s, int mode) {
  recorded = calloc(1000, sizeof *recorded);
  count = 0;
  capturing = mode == 1;
  return mode == 1 ? 0 : 1;
}
struct graph { struct launch *launches; int count; };
int cuStreamEndCapture(void *s, void **g) {
  struct graph *made = malloc(sizeof *made);
  made->launches = recorded;
  made->count = count;
  capturing = 0;
  *g = made;
  return 0;
}
int cuGraphInstantiateWithFlags(void **e, void *g, ptr flags) {
  struct graph *copy = malloc(sizeof *copy);
  *copy = *(struct graph *)g;
  *e = copy;
  return 0;
}
int cuGraphInstantiate(void **e, void *g, ptr flags) { return cuGraphInstantiateWithFlags(e, g, flags); }
int cuGraphDestroy(void *g) { free(g); return 0; }
int cuGraphExecDestroy(void *e) { free(e); return 0; }
int cuGraphLaunch(void *e, void *s) {
  struct graph *g = e;
  for (int i = 0; i < g->count; i++) simulate(g->launches[i]);
  return 0;
}
