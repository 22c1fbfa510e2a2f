// Running a grid: workers take blocks from a counter; the whole launch is a forked child, so a crash or an endless loop
// ends there.
#pragma once
#include <csignal>
#include <sys/mman.h>
#include <sys/prctl.h>
static void fiber_main() {
  tl->job->call(tl->job->args);
  Cta& c = *tl;
  Warp& p = c.wp[c.cur >> 5];
  Thread& t = c.th[c.cur];
  const u32 bit = 1u << (c.cur & 31);
  if (!t.cp.empty())
    report("in-flight", t.cp[0].line, 0, "the thread exits with %zu cp.async not waited for", t.cp.size());
  p.alive &= ~bit;
  p.runnable &= ~bit;
  c.alive--;
  t.wait = nullptr;
  if (c.bar[0].arrived && c.bar[0].whole)
    report("divergent-barrier", c.bar[0].line, 0,
           "the thread exits while %d others wait at the block-wide barrier of line %d", c.bar[0].arrived,
           c.bar[0].line);
  if (p.arrived && p.arrived == p.alive) {
    report("divergent-warp", p.line, 0, "a lane exits while others wait at %s of line %d", op_name(p.op), p.line);
    p.arrived = 0;
    p.runnable |= p.alive;
  }
  if (!p.alive && !p.wg.empty()) report("in-flight", p.wg[0].line, 0, "the warp exits with wgmma not waited for");
  resume_next(c);
  __builtin_unreachable();
}
static void run_block(Cta& c, int x, int y, int z, u32 serial) {
  c.id[0] = c.progress->block[0] = x;
  c.id[1] = c.progress->block[1] = y;
  c.id[2] = c.progress->block[2] = z;
  c.serial = serial;
  c.base = c.top;
  c.alive = c.T;
  c.abort = false;
  c.tma.clear();
  std::fill(c.vcs.begin(), c.vcs.end(), c.base);
  memset(c.smem, 0xff, c.smem_bytes);  // NaN in every float format
  for (int t = 0; t < c.T; t++) {
    Thread& h = c.th[t];
    h.cp.clear();
    h.cp_group = h.wg_seq = h.wg_group = h.sequence = 0;
    h.wg_fenced = h.reader_fence = false;
    h.wait = nullptr;
    h.stale_line = h.stale_bar = 0;
    h.fence_clk = c.base;
    tick(c, t, c.base + 1);
    context_make(h.ctx, c.stacks + (size_t)t * STACK + 4096, STACK - 4096, fiber_main);
  }
  for (auto& w : c.wp) {
    w.runnable = w.alive = ~0u;
    w.arrived = w.seq = w.wg_base = 0;
    w.wg.clear();
  }
  for (auto& b : c.bar) {
    b.arrived = 0;
    b.vc.assign(c.VCN, 0);
  }
  for (auto& m : c.mb) m.used = false;
  c.async_clk = c.base + 1;
  c.cur = c.job->sched & 1 ? c.T - 1 : 0;
  context_switch(c.main, c.th[c.cur].ctx);
  if (!c.abort && !c.tma.empty()) report("in-flight", c.tma[0].line, 0, "the block ends with a TMA load in flight");
}
// A fault in the guard page of a fiber's stack is a stack overflow; the parent reads the mark after this process is
// gone.
static void on_fault(int number, siginfo_t* info, void*) {
  if (tl) {
    const long offset = (char*)info->si_addr - tl->stacks;
    if (offset >= 0 && offset < (long)tl->T * STACK && offset % STACK < 4096) tl->progress->stack_overflow = 1;
    tl->progress->thread = tl->cur;
  }
  signal(number, SIG_DFL);
  raise(number);
}
static void signal_stack(char* memory, size_t size) {
  stack_t s = {};
  s.ss_sp = memory;
  s.ss_size = size;
  sigaltstack(&s, nullptr);
}
static char* map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) _exit(99);
  return (char*)p;
}
static void worker(ph_job* job, int index, std::atomic<long>* next) {
  Cta& c = *new Cta();
  tl = &c;
  c.job = job;
  c.reports = &job->report;
  c.progress = &job->progress[index];
  c.check = job->check;
  c.T = job->threads;
  c.W = c.T / 32;
  c.VCN = (c.T + MBARS + c.W + 15) & ~15;
  c.shift = job->shift;
  c.top = 0;
  signal_stack(map(64 << 10), 64 << 10);
  c.stacks = map((size_t)c.T * STACK);
  for (int t = 0; t < c.T; t++) mprotect(c.stacks + (size_t)t * STACK, 4096, PROT_NONE);
  c.smem_bytes = job->shared_bytes;
  c.smem = (char*)aligned_alloc(1024, (c.smem_bytes + 2047) & ~1023u);
  c.th.resize(c.T);
  c.wp.resize(c.W);
  c.vcs.resize((size_t)c.T * c.VCN);
  if (c.check) {
    const size_t cells = (c.smem_bytes >> c.shift) + 16;
    c.wc.resize(cells);
    c.rc.resize(c.W);
    for (auto& r : c.rc) r.resize(cells);
  }
  c.progress->running = 1;
  const long gx = job->grid[0], gy = job->grid[1], n = gx * gy * job->grid[2];
  for (long i; !stop_all && (i = (*next)++) < n;) run_block(c, i % gx, i / gx % gy, i / gx / gy, (u32)i + 1);
  c.progress->running = 0;
  if (job->record_fd >= 0) flush_records(c);
}
static ph_job* current_job;
extern "C" void ph_rt_printf(const char* format, ...) {
  static std::mutex mutex;
  static size_t total = 0;
  char text[1024];
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  std::lock_guard<std::mutex> guard(mutex);
  if (n <= 0 || current_job->print_fd < 0 || total > (8u << 20)) return;
  const size_t bytes = (size_t)n < sizeof text ? n : sizeof text - 1;
  total += bytes;
  write_all(current_job->print_fd, text, bytes);
}
extern "C" void ph_rt_assert_fail(const char* text, int line) {
  report("assert", line, 0, "assertion failed: %s", text);
  stop_launch(*tl);
}
static void run_child(ph_job* job) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
  current_job = job;
  if (job->check)
    for (int i = 0; i < job->n_regions; i++) make_shadow(job->regions[i]);
  std::atomic<long> next(0);
  std::vector<std::thread> threads;
  for (int i = 1; i < job->workers; i++) threads.emplace_back(worker, job, i, &next);
  worker(job, 0, &next);
  for (auto& t : threads) t.join();
  if (job->check)
    for (int i = 0; i < job->n_tensors; i++) job->tensors[i].unwritten = count_unwritten(*job, job->tensors[i]);
  job->finished = 1;
}
// Starts the launch in a child process and returns its id, or -1. `job` and all it points to lie in memory that both
// share.
extern "C" int ph_start(ph_job* job) {
  const int pid = fork();
  if (pid) return pid;
  run_child(job);
  _exit(0);
}
