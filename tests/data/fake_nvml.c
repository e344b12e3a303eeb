/* A driver library as the tests need it: two GPUs, one of them divided by MIG, or an NVML that hangs or refuses (FAKE_NVML). The
   functions and their return codes are those of the NVML API reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
static int whole[2], part;
static int which(void *d) { return d == &whole[0] ? 0 : d == &whole[1] ? 1 : 2; }
static int text(char *to, unsigned size, const char *from) { snprintf(to, size, "%s", from); return OK; }

int nvmlInit_v2(void) {
  const char *mode = getenv("FAKE_NVML");
  if (mode && !strcmp(mode, "hang")) sleep(60);
  return mode ? atoi(mode) : OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(to, size, "580.95.05"); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = &whole[i]; return OK; }
int nvmlDeviceGetName(void *d, char *to, unsigned size) {
  return text(to, size, which(d) == 2 ? "NVIDIA H200 MIG 1g.18gb" : "NVIDIA H200");
}
int nvmlDeviceGetUUID(void *d, char *to, unsigned size) { return text(to, size, which(d) == 2 ? "MIG-1" : "GPU-1"); }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) { *major = 9; *minor = 0; return OK; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) {
  m->total = which(d) == 2 ? 17ULL << 30 : 140ULL << 30;
  m->free = m->total - (3ULL << 30);
  return OK;
}
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *then) { *now = *then = which(d) == 1; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *n) { *n = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned i, void **p) { *p = &part; return i == 2 ? OK : NOT_FOUND; }
int nvmlDeviceGetGpuInstanceId(void *d, unsigned *id) { *id = 9; return OK; }
int nvmlDeviceGetComputeMode(void *d, int *mode) { *mode = which(d) ? 2 : 0; return OK; }
int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, unsigned long long *n) {
  *n = 4;
  return type == 1 && counter == 0 ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetRemappedRows(void *d, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed) {
  *c = *u = *failed = 0;
  *pending = 1;
  return which(d) ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, process *p) {
  if (which(d)) { *n = 0; return OK; }
  if (*n < 2) { *n = 2; return TOO_SMALL; }
  *n = 2;
  p[0] = (process){4711, 5ULL << 30, 0, 0};
  p[1] = (process){4712, ~0ULL, 0, 0};
  return OK;
}
int nvmlDeviceGetP2PStatus(void *a, void *b, int kind, int *status) { *status = kind == 2 ? 0 : 1; return OK; }
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level) { *level = 50; return OK; }
int cuDriverGetVersion(int *v) { *v = 12080; return OK; }
