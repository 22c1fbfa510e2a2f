// Checked accesses to shared memory: bounds, alignment, uninitialised bytes, copies in flight, races.
#pragma once
// Is this range written, landed, and ordered before thread t? The first fault calls fail(cell, reason, first, last
// granule).
template<class F> static inline void check_written(Cta& c, int t, const u32* vc, u32 g0, u32 g1, F fail) {
  u64 last = ~0ull;
  for (u32 g = g0; g <= g1; g++) {
    const u64 w = c.wc[g];
    if (w == last) continue;
    last = w;
    const char* why = nullptr;
    if (clk_of(w) <= c.base) why = "uninitialized";
    else if (w & INFLIGHT) why = "in-flight";
    else if ((int)(w & TID) != t && vc[w & TID] < clk_of(w)) why = "race";
    if (why) {
      u32 end = g;
      while (end < g1 && c.wc[end + 1] == w) end++;
      fail(w, why, g, end);
      return;
    }
  }
}
static void fail_read(Cta& c, const char* what, int line, u64 w, const char* why, u32 g, u32 end) {
  const u32 b0 = g << c.shift, b1 = (end + 1) << c.shift;
  if (*why == 'u')
    report("uninitialized", line, 0, "%s of shared bytes [%u,%u) that nobody has written in this block", what, b0, b1);
  else if (*why == 'i')
    report("in-flight", line, line_of(w),
           "%s of shared bytes [%u,%u) while the copy by %s is in flight (missing or too weak wait)%s", what, b0, b1,
           who(c, w).c_str(), note(c, w).c_str());
  else
    report("race", line, line_of(w), "%s of shared bytes [%u,%u) written by %s with no synchronisation between%s", what,
           b0, b1, who(c, w).c_str(), note(c, w).c_str());
}
static inline void mark_read(Cta& c, int warp, u32 tid, u32 clk, u32 g0, u32 g1, int line) {
  const u64 me = cell(tid, clk, line);
  u64* readers = c.rc[warp].data();
  for (u32 g = g0; g <= g1; g++) {
    const u64 r = readers[g];
    // other lanes at the same clock keep their mark by the bit
    const u64 others = clk_of(r) != clk ? 0 : (r & TID) != tid ? MULTI : r & MULTI;
    readers[g] = me | others;
  }
}
static void shadow_read(Cta& c, u32 offset, u32 size, int line, const char* what = "read") {
  const int t = c.cur;
  const u32 g0 = offset >> c.shift, g1 = (offset + size - 1) >> c.shift;
  check_written(c, t, c.vc(t), g0, g1,
                [&](u64 w, const char* why, u32 g, u32 end) { fail_read(c, what, line, w, why, g, end); });
  mark_read(c, t >> 5, t, c.th[t].clk, g0, g1, line);
}
// May the running thread overwrite these bytes now? Then they are stamped with `stamp`.
static void shadow_write(Cta& c, u32 offset, u32 size, int line, u64 stamp, const char* what = "write") {
  const int t = c.cur;
  const u32* vc = c.vc(t);
  const u32 g0 = offset >> c.shift, g1 = (offset + size - 1) >> c.shift;
  bool bad = false;
  u64 last = ~0ull;
  for (u32 g = g0; g <= g1 && !bad; g++) {
    const u64 w = c.wc[g];
    if (w == last) continue;
    last = w;
    if (clk_of(w) <= c.base || (w & stamp & ATOMIC)) continue;
    if (w & INFLIGHT) {
      bad = true;
      report("in-flight", line, line_of(w), "%s of shared bytes [%u,%u) while the copy by %s is in flight%s", what,
             g << c.shift, (g1 + 1) << c.shift, who(c, w).c_str(), note(c, w).c_str());
    } else if ((int)(w & TID) != t && vc[w & TID] < clk_of(w)) {
      bad = true;
      u32 end = g;
      while (end < g1 && c.wc[end + 1] == w) end++;
      report("race", line, line_of(w),
             "%s of shared bytes [%u,%u) also written by %s with no synchronisation between%s", what, g << c.shift,
             (end + 1) << c.shift, who(c, w).c_str(), note(c, w).c_str());
    }
  }
  for (int warp = 0; warp < c.W && !bad; warp++) {
    const u64* readers = c.rc[warp].data();
    last = ~0ull;
    for (u32 g = g0; g <= g1 && !bad; g++) {
      const u64 r = readers[g];
      if (r == last) continue;
      last = r;
      const u32 clk = clk_of(r);
      const int reader = r & TID;
      if (clk <= c.base) continue;
      bool race = reader != t && vc[reader] < clk;
      if (!race && (r & MULTI) && warp == t >> 5 && reader == t)
        for (int l = 0; l < 32; l++) race |= warp * 32 + l != t && vc[warp * 32 + l] < clk;
      if (race) {
        bad = true;
        u32 end = g;
        while (end < g1 && readers[end + 1] == r) end++;
        report("race", line, line_of(r),
               "%s of shared bytes [%u,%u) that are read by %s with no synchronisation between%s", what, g << c.shift,
               (end + 1) << c.shift, who(c, r).c_str(), note(c).c_str());
      }
    }
  }
  for (u32 g = g0; g <= g1; g++) c.wc[g] = stamp;
}
static bool in_shared(Cta& c, long long offset, u32 size, u32 align, int line, const char* what) {
  at_line(c, line);
  if (offset < 0 || offset + size > c.smem_bytes) {
    report("out-of-bounds", line, 0, "%s of shared bytes [%lld,%lld), the block has %u", what, offset, offset + size,
           c.smem_bytes);
    return false;
  }
  if (offset & (align - 1)) {
    report("misaligned", line, 0, "%s of %u shared bytes at %lld", what, size, offset);
    return false;
  }
  return true;
}
extern "C" const void* ph_rt_sread(long long offset, unsigned size, unsigned align, int line) {
  Cta& c = *tl;
  if (!in_shared(c, offset, size, align, line, "read")) return memset(dummy, 0, sizeof dummy);
  record(c, 1, false, -1, offset, size, 0, line);
  if (c.check) shadow_read(c, offset, size, line);
  return c.smem + offset;
}
extern "C" void* ph_rt_swrite(long long offset, unsigned size, unsigned align, int line) {
  Cta& c = *tl;
  if (!in_shared(c, offset, size, align, line, "write")) return dummy;
  record(c, 1, true, -1, offset, size, 0, line);
  if (c.check) shadow_write(c, offset, size, line, cell(c.cur, c.th[c.cur].clk, line));
  return c.smem + offset;
}
extern "C" void* ph_rt_satomic(long long offset, unsigned size, int line) {
  Cta& c = *tl;
  if (!in_shared(c, offset, size, size, line, "atomic")) return dummy;
  record(c, 1, true, -1, offset, size, 1, line);
  if (c.check) {
    const u64 w = c.wc[offset >> c.shift];
    if (clk_of(w) <= c.base)
      report("uninitialized", line, 0, "atomic on shared byte %lld that nobody has written", offset);
    shadow_write(c, offset, size, line, cell(c.cur, c.th[c.cur].clk, line) | ATOMIC, "atomic");
  }
  return c.smem + offset;
}
