// Who runs next: the same warp first, then the next warp; `sched` & 1 turns both orders round. TMA loads land when
// nobody can run.
#pragma once
static bool land_tma(Cta& c);
static void deadlock(Cta& c);
[[noreturn]] static void give_up(Cta& c) {
  Context dead;
  context_switch(dead, c.main);
  __builtin_unreachable();
}
[[noreturn]] static void stop_launch(Cta& c) {
  c.abort = true;
  stop_all = true;
  give_up(c);
}
// The caller has made itself not runnable, or yields.
static void resume_next(Cta& c) {
  const bool backward = c.job->sched & 1;
  for (;;) {
    const int w0 = c.cur >> 5, lane0 = c.cur & 31;
    for (int k = 0; k < c.W; k++) {
      const int w = backward ? (w0 + c.W - k) % c.W : (w0 + k) % c.W;
      const u32 all = c.wp[w].runnable;
      if (!all) continue;
      int lane;
      if (backward) {
        const u32 below = k ? all : all & ((1u << lane0) - 1);
        lane = 31 - __builtin_clz(below ? below : all);
      } else {
        const u32 above = k ? all : all & ~((2u << lane0) - 1);
        lane = __builtin_ctz(above ? above : all);
      }
      const int next = w * 32 + lane;
      if (next == c.cur) return;
      Context& from = c.th[c.cur].ctx;
      c.cur = next;
      context_switch(from, c.th[next].ctx);
      return;
    }
    if (!c.alive) give_up(c);
    if (!land_tma(c)) {
      deadlock(c);
      stop_launch(c);
    }
  }
}
static void block(Cta& c, const char* why, int id, int line) {
  Thread& t = c.th[c.cur];
  t.wait = why;
  t.wait_id = id;
  t.line = line;
  c.wp[c.cur >> 5].runnable &= ~(1u << (c.cur & 31));
  resume_next(c);
  t.wait = nullptr;
}
static void deadlock(Cta& c) {
  std::string text;
  int groups = 0, line = 0;
  for (int t = 0; t < c.T && groups < 5; groups++) {
    int end = t;
    const Thread& x = c.th[t];
    while (end < c.T && c.th[end].wait == x.wait &&
           (!x.wait || (c.th[end].wait_id == x.wait_id && c.th[end].line == x.line)))
      end++;
    char b[200];
    if (!x.wait) snprintf(b, sizeof b, "threads %d-%d have exited; ", t, end - 1);
    else if (!strcmp(x.wait, "mbarrier")) {
      const Mbar& m = c.mb[x.wait_id];
      snprintf(b, sizeof b,
               "threads %d-%d wait for the mbarrier at shared byte %u (phase %u, %d of %d arrivals missing, %ld bytes "
               "outstanding) at line %d; ",
               t, end - 1, m.offset, m.phase, m.pending, m.count, m.tx, x.line);
    } else snprintf(b, sizeof b, "threads %d-%d wait at %s %d at line %d; ", t, end - 1, x.wait, x.wait_id, x.line);
    text += b;
    if (x.wait && !line) line = x.line;
    t = end;
  }
  report("deadlock", line, 0, "nobody can go on: %s", text.c_str());
}
