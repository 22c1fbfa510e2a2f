// The state of one block (CTA). Each CUDA thread is a fiber; a fiber gives up the CPU only where it must wait (barrier,
// warp collective, mbarrier), so everything between is atomic and deterministic.
//
// Happens-before is exact: a vector clock per thread (entries: threads, one pseudo-thread per mbarrier for TMA writes,
// one per warp for wgmma reads). The shadow of shared memory has per granule (1, 2 or 4 bytes) the last writer, and the
// last reader of each warp, as a 64-bit cell  clock:32 | line:18 | multi:1 | atomic:1 | inflight:1 | thread:11. Clocks
// only grow, also from one block to the next: a cell at or below `base` is from an earlier block, so nothing is
// cleared.
#pragma once
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>
#include <unistd.h>

enum {
  MBARS = 32,
  STACK = 260 << 10
};  // stack stride: no power of two, which would put all frames into the same cache sets
static const u64 INFLIGHT = 1 << 11, ATOMIC = 1 << 12, MULTI = 1 << 13, TID = 2047;
static inline u64 cell(u32 tid, u32 clk, int line) { return (u64)clk << 32 | (u64)(line & 0x3ffff) << 14 | tid; }
static inline u32 clk_of(u64 c) { return c >> 32; }
static inline int line_of(u64 c) { return (c >> 14) & 0x3ffff; }

struct CpOp {  // a cp.async that has not landed
  u32 dst;
  const void* src;
  u32 bytes;
  int ok;
  u32 group;
  int line;
};
struct Thread {
  Context ctx;
  const char* wait;  // what it waits at, null while it runs or has exited
  int wait_id, line;
  u32 clk, fence_clk;
  bool reader_fence, wg_fenced;
  std::vector<CpOp> cp;
  u32 cp_group, wg_seq, wg_group;
  u32 seen[MBARS];  // phase that its last wait passed for
  int stale_line, stale_bar;
  u32 sequence;  // of its recorded accesses
};
struct WgOp {  // a wgmma that has not been waited for, of one warp
  const u32* areg[32];
  float* acc[32];
  u32 asave[32][4];
  std::vector<float> in;  // accumulators at issue; the registers hold a poison meanwhile
  u32 lanes;
  bool chained;  // continues the accumulators of an op in flight
  u64 ad, bd;
  int n, tb, scale, kind, line;
  u32 group, clk;
  std::vector<u64> wcells;  // distinct writers of the operand bytes
};
struct Warp {
  u32 runnable, alive, arrived;
  int op, line, imm;
  u32 seq;
  u64 slot[2][32];
  void* p[32][3];
  u32 offset[32];
  u32 wg_base;
  std::vector<WgOp> wg;
};
struct Bar {
  int arrived, count, line;
  bool whole;
  u32 waiting[32];
  u32 maxclk;
  std::vector<u32> vc;
};
struct Mbar {
  u32 offset;
  bool used;
  int count, pending, issuer, init_by, line;
  bool fenced;
  long tx;
  u32 phase;
  std::vector<u32> cur, done;
};
struct TmaOp {
  u32 dst;
  ph_tmap map;
  int c0, c1, slot;
  u32 clk;
  int line;
};

struct Cta {
  const ph_job* job;
  ph_report* reports;
  ph_progress* progress;
  int T, W, VCN, cur, alive;  // threads, warps, length of a vector clock, running thread, threads not exited
  int id[3];
  u32 serial, base, top, async_clk;  // serial: linear block index + 1
  bool check, abort;
  int shift;
  char* stacks;
  Context main;
  char* smem;
  u32 smem_bytes;
  std::vector<Thread> th;
  std::vector<Warp> wp;
  Bar bar[16];
  Mbar mb[MBARS];
  std::vector<TmaOp> tma;
  float A[16][16], B[16][256],
      D[16][256];  // scratch of wmma and wgmma (not thread_local: the static TLS block is small)
  std::vector<u32> tmp, vcs;
  std::vector<u64> wc;               // writers of shared memory
  std::vector<std::vector<u64>> rc;  // readers, for each warp
  std::vector<ph_access> records;
  u32* vc(int t) { return &vcs[(size_t)t * VCN]; }
  int mslot(int s) { return T + s; }
  int wslot(int w) { return T + MBARS + w; }
};
static thread_local Cta* tl __attribute__((tls_model("initial-exec")));
static std::mutex report_mutex;
static std::atomic<bool> stop_all(false);  // after a deadlock or a failed assertion no further block starts
static char dummy[64];                     // where accesses go that were reported as out of bounds

static void report(const char* kind, int line, int line2, const char* format, ...) {
  Cta& c = *tl;
  std::lock_guard<std::mutex> guard(report_mutex);
  ph_report& all = *c.reports;
  all.total++;
  for (int i = 0; i < all.n; i++)
    if (all.e[i].line == line && all.e[i].line2 == line2 && !strcmp(all.e[i].kind, kind)) {
      all.e[i].count++;
      return;
    }
  if (all.n == MAX_REPORTS) return;
  ph_entry& e = all.e[all.n];
  snprintf(e.kind, sizeof e.kind, "%s", kind);
  e.line = line;
  e.line2 = line2;
  e.count = 1;
  const int n = snprintf(e.text, sizeof e.text, "thread %d (warp %d lane %d) of block (%d,%d,%d): ", c.cur, c.cur >> 5,
                         c.cur & 31, c.id[0], c.id[1], c.id[2]);
  va_list args;
  va_start(args, format);
  vsnprintf(e.text + n, sizeof e.text - n, format, args);
  va_end(args);
  __atomic_store_n(&all.n, all.n + 1, __ATOMIC_RELEASE);
}
static inline void at_line(Cta& c, int line) {  // what a report of a crash or a timeout says
  c.progress->thread = c.cur;
  c.progress->line = line;
}
static std::string who(Cta& c, u64 w) {
  char b[96];
  const int t = w & TID;
  if (t < c.T) snprintf(b, sizeof b, "thread %d (warp %d) at line %d", t, t >> 5, line_of(w));
  else if (t < c.T + MBARS)
    snprintf(b, sizeof b, "TMA load of line %d (mbarrier at shared byte %u)", line_of(w), c.mb[t - c.T].offset);
  else snprintf(b, sizeof b, "wgmma of warp %d at line %d", t - c.T - MBARS, line_of(w));
  return b;
}
// A wait that passed for an old phase is the likely cause of many a race: of the reporter, or of the thread that issued
// the TMA.
static std::string note(Cta& c, u64 w = 0) {
  int x = c.cur;
  const int s = (int)(w & TID) - c.T;
  if (!c.th[x].stale_line && s >= 0 && s < MBARS) x = c.mb[s].issuer;
  const Thread& t = c.th[x];
  if (!t.stale_line) return "";
  char b[240];
  snprintf(b, sizeof b,
           "; note: the mbarrier wait of thread %d at line %d (mbarrier at shared byte %u) returned at once for a "
           "phase it had already "
           "waited for: is the parity flipped?",
           x, t.stale_line, c.mb[t.stale_bar].offset);
  return b;
}

// ---- recording
static std::mutex record_mutex;
static void write_all(int fd, const void* data, size_t bytes) {
  for (const char* p = (const char*)data; bytes > 0;) {
    const ssize_t n = write(fd, p, bytes);
    if (n <= 0) return;  // the disk is full: the record ends here, the launch goes on
    p += n;
    bytes -= n;
  }
}
static void flush_records(Cta& c) {
  std::lock_guard<std::mutex> guard(record_mutex);
  write_all(c.job->record_fd, c.records.data(), c.records.size() * sizeof(ph_access));
  c.records.clear();
}
static inline void record(Cta& c, int space, bool write, int tensor, long long offset, u32 size, int kind, int line) {
  if (c.job->record_fd < 0) return;
  c.records.push_back({c.serial - 1, (uint16_t)c.cur, (uint8_t)space, write, c.th[c.cur].sequence++, line, tensor,
                       (uint16_t)size, (uint16_t)kind, offset});
  if (c.records.size() >= 1 << 16) flush_records(c);
}

// ---- vector clocks
static inline void join(u32* d, const u32* s, int n) {
  for (int i = 0; i < n; i++) d[i] = d[i] > s[i] ? d[i] : s[i];
}
static void tick(Cta& c, int t, u32 clk) {
  c.th[t].clk = clk;
  c.vc(t)[t] = clk;
  if (clk > c.top) c.top = clk;
}
