// What the runtime shares with Python (phobos/emulator/launch.py holds the same structures): all in one shared mapping,
// so that the parent reads reports, progress and counts of a child that was killed.
#pragma once
#include <cstdint>
typedef uint32_t u32;
typedef uint64_t u64;

enum { MAX_REPORTS = 64, MAX_WORKERS = 16 };

struct ph_entry {
  char kind[24];
  int line, line2;
  long long count;
  char text[488];
};
struct ph_report {
  int n, pad;
  long long total;
  ph_entry e[MAX_REPORTS];
};
struct ph_progress {  // of one worker: what it does now
  int running, block[3], thread, line, stack_overflow, pad;
};
struct ph_region {  // a stretch of global memory: one array, or several that overlap
  char* base;
  u64 bytes;
  int granule;   // bytes of the smallest element in it
  int shadowed;  // some argument may write to it
  int init;      // some argument reads it, so its first contents are meant
  int pad;
  void* shadow;  // set by the runtime
};
struct ph_tensor {  // one tensor argument
  char* base;
  u64 bytes;
  int item, writable, region, index;
  const unsigned char* member;  // one byte an element: does it belong to the strided array? null: all do
  long long unwritten;          // set by the runtime
  char name[64];
};
struct ph_access {  // a record of one memory access of one thread
  u32 block;        // linear block index
  uint16_t thread;
  uint8_t space;  // 0 global, 1 shared
  uint8_t write;
  u32 sequence;  // number of the access among the thread's own
  int line, tensor;
  uint16_t size, kind;  // kind: 0 plain, 1 atomic, 2 ldmatrix, 3 cp.async
  long long offset;     // bytes from the tensor's first element, or from the start of the block's shared memory
};
struct ph_job {
  void (*call)(void**);
  void** args;
  int grid[3], threads;
  u32 shared_bytes;
  int workers, check, shift, sched;  // shift: log2 of the shadow granule of shared memory
  int n_tensors, n_regions;
  ph_tensor* tensors;
  ph_region* regions;
  int record_fd, print_fd;  // -1: none
  int finished, pad;
  ph_report report;
  ph_progress progress[MAX_WORKERS];
};
