// Asynchronous copies land as late as they may: cp.async in the wait_group of its thread, a TMA load only when nobody
// can run.
#pragma once
extern "C" void ph_rt_cp_async(unsigned dst, const void* src, ph_tensor* t, unsigned bytes, int ok, int line) {
  Cta& c = *tl;
  Thread& th = c.th[c.cur];
  if (!in_shared(c, (int)dst, bytes, bytes, line, "cp.async to")) return;
  if (ok && t) {
    if (!in_global(c, t, src, bytes, bytes, line, "cp.async")) return;
    record(c, 0, false, t->index, (const char*)src - t->base, bytes, 3, line);
    if (c.check) global_access(c, t, src, bytes, line, false, 0);
  }
  record(c, 1, true, -1, dst, bytes, 3, line);
  if (c.check) shadow_write(c, dst, bytes, line, cell(c.cur, th.clk, line) | INFLIGHT, "cp.async to");
  th.cp.push_back({dst, src, bytes, ok, th.cp_group, line});
}
extern "C" void ph_rt_cp_commit(int) { tl->th[tl->cur].cp_group++; }
extern "C" void ph_rt_cp_wait(int pending, int line) {
  Cta& c = *tl;
  at_line(c, line);
  Thread& th = c.th[c.cur];
  size_t n = 0;
  while (n < th.cp.size() && (long)th.cp[n].group < (long)th.cp_group - pending) {
    const CpOp& o = th.cp[n++];
    if (o.ok) memcpy(c.smem + o.dst, o.src, o.bytes);
    else memset(c.smem + o.dst, 0, o.bytes);
    if (c.check)
      for (u32 g = o.dst >> c.shift; g <= (o.dst + o.bytes - 1) >> c.shift; g++) c.wc[g] = cell(c.cur, th.clk, o.line);
  }
  th.cp.erase(th.cp.begin(), th.cp.begin() + n);
}

static int mbar_of(Cta& c, u32 offset, int line, const char* what) {
  at_line(c, line);
  for (int i = 0; i < MBARS; i++)
    if (c.mb[i].used && c.mb[i].offset == offset) {
      if (c.check) shadow_read(c, offset, 8, line, what);
      return i;
    }
  report("mbarrier", line, 0, "%s of shared byte %u, where no mbarrier has been initialised", what, offset);
  return -1;
}
extern "C" void ph_rt_mbar_init(unsigned offset, int count, int line) {
  Cta& c = *tl;
  if (!in_shared(c, (int)offset, 8, 8, line, "mbarrier.init")) return;
  if (c.check) shadow_write(c, offset, 8, line, cell(c.cur, c.th[c.cur].clk, line), "mbarrier.init");
  int i = 0;
  while (i < MBARS && c.mb[i].used && c.mb[i].offset != offset) i++;
  if (i == MBARS) {
    report("mbarrier", line, 0, "more than %d mbarriers", MBARS);
    return;
  }
  Mbar& m = c.mb[i];
  if (m.used) report("mbarrier", line, m.line, "the mbarrier at shared byte %u is initialised twice", offset);
  m.used = true;
  m.fenced = false;
  m.init_by = c.cur;
  m.line = line;
  m.offset = offset;
  m.count = m.pending = count;
  m.tx = 0;
  m.phase = 0;
  m.cur.assign(c.VCN, 0);
  m.done.assign(c.VCN, 0);
  for (auto& t : c.th) t.seen[i] = 0;
}
// The phase completes when no arrival and no byte is outstanding.
static void mbar_try_complete(Cta& c, int i) {
  Mbar& m = c.mb[i];
  if (m.pending || m.tx) return;
  m.phase++;
  m.pending = m.count;
  join(m.done.data(), m.cur.data(), c.VCN);
  for (int x = 0; x < c.T; x++)
    if (c.th[x].wait && !strcmp(c.th[x].wait, "mbarrier") && c.th[x].wait_id == i)
      c.wp[x >> 5].runnable |= 1u << (x & 31);
}
extern "C" void ph_rt_mbar_arrive(unsigned offset, unsigned tx, int count, int line) {
  Cta& c = *tl;
  const int i = mbar_of(c, offset, line, "mbarrier.arrive");
  if (i < 0) return;
  Mbar& m = c.mb[i];
  Thread& t = c.th[c.cur];
  if (m.pending < count) {
    report("mbarrier", line, 0, "more arrivals than the %d that the mbarrier at shared byte %u expects in phase %u",
           m.count, offset, m.phase);
    return;
  }
  if (c.check) {
    join(m.cur.data(), c.vc(c.cur), c.VCN);
    tick(c, c.cur, t.clk + 1);
  }
  m.tx += tx;
  m.pending -= count;
  mbar_try_complete(c, i);
}
// A wait for a parity passes if the current phase has the other one. A try_wait that is retried is the same thing, so
// it blocks too.
extern "C" int ph_rt_mbar_wait(unsigned offset, int parity, int line) {
  Cta& c = *tl;
  const int i = mbar_of(c, offset, line, "mbarrier.try_wait");
  if (i < 0) return 1;
  Mbar& m = c.mb[i];
  Thread& t = c.th[c.cur];
  bool at_once = true;
  while ((int)(m.phase & 1) == (parity & 1)) {
    at_once = false;
    block(c, "mbarrier", i, line);
  }
  if (at_once && m.phase == t.seen[i] && m.phase > 0) {
    t.stale_line = line;
    t.stale_bar = i;
  } else if (t.stale_bar == i) t.stale_line = 0;
  t.seen[i] = m.phase;
  if (c.check) {
    join(c.vc(c.cur), m.done.data(), c.VCN);
    t.reader_fence = false;
  }
  return 1;
}

static inline u32 swizzle128(u32 a) { return a ^ ((a >> 7 & 7) << 4); }
extern "C" void ph_rt_tma_load(unsigned dst, const ph_tmap* map, int c0, int c1, unsigned mbar, int line) {
  Cta& c = *tl;
  const ph_tmap& m = *map;
  const u32 bytes = m.box[0] * m.box[1] * m.item;
  const int i = mbar_of(c, mbar, line, "TMA load on the mbarrier");
  if (i < 0 || !in_shared(c, (int)dst, bytes, m.swizzle ? 1024 : 128, line, "TMA load to")) return;
  if (m.swizzle && m.box[0] * m.item > 128) {
    report("tma", line, 0, "inner box of %d bytes with 128-byte swizzle", m.box[0] * m.item);
    return;
  }
  if (!c.mb[i].fenced)
    report("proxy-fence", line, c.mb[i].line,
           "TMA load on the mbarrier initialised at line %d without ph_fence_mbar_init after it", c.mb[i].line);
  const u32 clk = ++c.async_clk;
  if (clk > c.top) c.top = clk;
  if (c.check) shadow_write(c, dst, bytes, line, cell(c.mslot(i), clk, line) | INFLIGHT, "TMA load to");
  c.mb[i].issuer = c.cur;
  c.tma.push_back({dst, m, c0, c1, i, clk, line});
}
// The newest load first, or the oldest, by `sched` & 2. Elements past an edge are zero and their bytes count.
static bool land_tma(Cta& c) {
  if (c.tma.empty()) return false;
  const size_t k = c.job->sched & 2 ? 0 : c.tma.size() - 1;
  const TmaOp o = c.tma[k];
  c.tma.erase(c.tma.begin() + k);
  const int item = o.map.item;
  const u32 inner = o.map.box[0] * item, bytes = inner * o.map.box[1], slot = c.mslot(o.slot);
  for (int y = 0; y < o.map.box[1]; y++)
    for (int x = 0; x < o.map.box[0]; x++) {
      const int gx = o.c0 + x, gy = o.c1 + y;
      u32 a = o.dst + y * inner + x * item;
      if (o.map.swizzle) a = swizzle128(a);
      if (gx >= 0 && gy >= 0 && gx < o.map.dim[0] && gy < o.map.dim[1])
        memcpy(c.smem + a, o.map.base + (u64)gy * o.map.stride + (u64)gx * item, item);
      else memset(c.smem + a, 0, item);
    }
  Mbar& m = c.mb[o.slot];
  if (c.check) {
    for (u32 g = o.dst >> c.shift; g <= (o.dst + bytes - 1) >> c.shift; g++)
      if ((c.wc[g] & TID) == slot && clk_of(c.wc[g]) == o.clk) c.wc[g] = cell(slot, o.clk, o.line);
    if (m.cur[slot] < o.clk) m.cur[slot] = o.clk;
  }
  m.tx -= bytes;
  mbar_try_complete(c, o.slot);
  return true;
}
extern "C" void ph_rt_fence_mbar(int) {
  Cta& c = *tl;
  for (auto& m : c.mb)
    if (m.init_by == c.cur) m.fenced = true;
}
extern "C" void ph_rt_fence_proxy(int line) {
  Cta& c = *tl;
  Thread& t = c.th[c.cur];
  ph_rt_fence_mbar(line);
  t.fence_clk = t.clk;
  t.reader_fence = true;
  if (c.check) tick(c, c.cur, t.clk + 1);
}
