// wgmma: the issue records the operands and poisons the accumulators; the warp evaluates its 16 rows in wait_group.
// Until then operand bytes count as being read, and accumulators and A registers must stay as they are.
#pragma once
static const u32 POISON = 0x7fb00bad;
extern "C" void ph_rt_wg_fence(int) { tl->th[tl->cur].wg_fenced = true; }
extern "C" void ph_rt_wg_commit(int) { tl->th[tl->cur].wg_group++; }
// Descriptor fields, and the address of element (row, k) or (n, k) under the 128-byte swizzle (on the final address).
static inline u32 d_address(u64 d) { return (d & 0x3fff) << 4; }
static inline u32 d_lbo(u64 d) { return (d >> 16 & 0x3fff) << 4; }
static inline u32 d_sbo(u64 d) { return (d >> 32 & 0x3fff) << 4; }
static inline u32 k_major(u64 d, int r, int k) {
  return swizzle128(d_address(d) + (r >> 3) * d_sbo(d) + (r & 7) * 128 + k * 2);
}
static inline u32 mn_major(u64 d, int n, int k) {
  return swizzle128(d_address(d) + (n & 63) * 2 + (n >> 6) * d_lbo(d) + (k & 7) * 128 + (k >> 3) * d_sbo(d));
}
// the 16-byte chunks that one warp reads
template<class F> static void wg_chunks(const WgOp& o, int row0, F f) {
  if (!o.areg[0])
    for (int r = 0; r < 16; r++)
      for (int k = 0; k < 16; k += 8) f(k_major(o.ad, row0 + r, k));
  if (o.tb) {
    for (int k = 0; k < 16; k++)
      for (int n = 0; n < o.n; n += 8) f(mn_major(o.bd, n, k));
  } else {
    for (int n = 0; n < o.n; n++)
      for (int k = 0; k < 16; k += 8) f(k_major(o.bd, n, k));
  }
}
static void wg_check_writers(Cta& c, const std::vector<u64>& cells, int line) {
  const int t = c.cur;
  const u32* vc = c.vc(t);
  for (u64 w : cells) {
    const int x = w & TID;
    if (x != t && vc[x] < clk_of(w))
      report("race", line, line_of(w), "wgmma reads shared bytes written by %s with no synchronisation between%s",
             who(c, w).c_str(), note(c, w).c_str());
    if (x < c.T && c.th[x].fence_clk < clk_of(w) && !c.th[t].reader_fence)
      report("proxy-fence", line, line_of(w), "wgmma reads shared bytes written by %s without ph_fence_proxy_async",
             who(c, w).c_str());
  }
}
// Once a warp: walks the shadow of the operands, collects their distinct writers.
static void wg_check_operands(Cta& c, WgOp& o, int w, int line) {
  bool bad = false;
  u64 last = ~0ull;
  const int reader = c.wslot(w);
  wg_chunks(o, 16 * (w & 3), [&](u32 a) {
    if (a + 16 > c.smem_bytes) {
      if (!bad) in_shared(c, a, 16, 1, line, "wgmma operand");
      bad = true;
      return;
    }
    const u32 g0 = a >> c.shift, g1 = (a + 15) >> c.shift;
    for (u32 g = g0; g <= g1; g++) {
      const u64 x = c.wc[g];
      if (x == last) continue;
      last = x;
      const bool fresh = clk_of(x) > c.base;
      if (!fresh || (x & INFLIGHT)) {
        if (!bad) fail_read(c, "wgmma operand read", line, x, fresh ? "in-flight" : "uninitialized", g, g1);
        bad = true;
        continue;
      }
      bool known = false;
      for (u64 y : o.wcells) known |= y == x;
      if (!known) o.wcells.push_back(x);
    }
    mark_read(c, w, reader, o.clk, g0, g1, line);
  });
}
static void poison(WgOp& o, int lane, float* d) {
  memcpy(&o.in[lane * o.n / 2], d, o.n * 2);
  for (int i = 0; i < o.n / 2; i++) memcpy(d + i, &POISON, 4);
}
extern "C" void ph_rt_wgmma(float* d, const unsigned* ar, ph_u64 ad, ph_u64 bd, int n, int tb, int scale, int kind,
                            int line) {
  Cta& c = *tl;
  at_line(c, line);
  const int w = c.cur >> 5, lane = c.cur & 31;
  Thread& t = c.th[c.cur];
  Warp& p = c.wp[w];
  if (!t.wg_fenced) report("wgmma-fence", line, 0, "wgmma without ph_wg_fence since the last wait");
  if ((bd >> 62) != 1 || (!ar && (ad >> 62) != 1)) report("wgmma", line, 0, "only the 128-byte swizzle is implemented");
  const u32 s = t.wg_seq++ - p.wg_base;
  const bool first = s == p.wg.size();
  if (first) {
    p.wg.emplace_back();
    WgOp& o = p.wg.back();
    o.ad = ad;
    o.bd = bd;
    o.n = n;
    o.tb = tb;
    o.scale = scale;
    o.kind = kind;
    o.line = line;
    o.group = t.wg_group;
    o.lanes = 0;
    o.chained = false;
    o.in.resize(32 * n / 2);
    memset(o.areg, 0, sizeof o.areg);
    o.areg[0] = ar;
    o.clk = ++c.async_clk;
    if (o.clk > c.top) c.top = o.clk;
  }
  WgOp& o = p.wg[s];
  if (o.line != line || o.bd != bd || o.ad != ad)
    report("divergent-warp", line, o.line, "wgmma: the lanes of a warp disagree on the instruction or its descriptors");
  o.areg[lane] = ar;
  o.acc[lane] = d;
  o.lanes |= 1u << lane;
  if (ar) memcpy(o.asave[lane], ar, 16);
  for (u32 q = 0; q < s; q++)
    if (p.wg[q].acc[lane] == d) o.chained = true;
  if (!o.chained) poison(o, lane, d);
  if (!c.check) return;
  if (first) wg_check_operands(c, o, w, line);
  wg_check_writers(c, o.wcells, line);
}
static void wg_evaluate(Cta& c, int w, WgOp& o) {
  auto& A = c.A;
  auto& B = c.B;
  auto& D = c.D;
  const int N = o.n, row0 = 16 * (w & 3);
  const u32 last = c.smem_bytes - 2;
  const auto at = [&](u32 a) {
    unsigned short h;
    memcpy(&h, c.smem + (a > last ? last : a), 2);
    return f16_of(o.kind, h);
  };
  if (o.areg[0]) {
    for (int l = 0; l < 32; l++) {
      a_fragment(A, o.asave[l], l, o.kind);
      if (memcmp(o.asave[l], o.areg[l], 16))
        report("wgmma-register", o.line, 0, "the A registers of a wgmma changed before its wait_group");
    }
  } else {
    for (int r = 0; r < 16; r++)
      for (int k = 0; k < 16; k++) A[r][k] = at(k_major(o.ad, row0 + r, k));
  }
  for (int k = 0; k < 16; k++)
    for (int n = 0; n < N; n++) B[k][n] = at(o.tb ? mn_major(o.bd, n, k) : k_major(o.bd, n, k));
  const auto row = [](int l, int i) { return (l >> 2) + 8 * (i >> 1 & 1); };
  const auto col = [](int l, int i) { return 8 * (i >> 2) + 2 * (l & 3) + (i & 1); };
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < N / 2; i++) {
      float v = o.acc[l][i];
      if (!o.chained) {
        if (f_bits(v) != POISON)
          report("wgmma-register", o.line, 0, "an accumulator register of a wgmma changed before its wait_group");
        v = o.in[l * N / 2 + i];
      }
      D[row(l, i)][col(l, i)] = o.scale ? v : 0.f;
    }
  for (int r = 0; r < 16; r++)
    for (int k = 0; k < 16; k++) {
      const float a = A[r][k];
      for (int n = 0; n < N; n++) D[r][n] += a * B[k][n];
    }
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < N / 2; i++) o.acc[l][i] = D[row(l, i)][col(l, i)];
}
extern "C" void ph_rt_wg_wait(int pending, int line) {
  Cta& c = *tl;
  const int w = c.cur >> 5;
  Warp& p = c.wp[w];
  c.th[c.cur].wg_fenced = false;
  if (!meet(c, OP_WGWAIT, pending, line)) return;
  const long limit = (long)c.th[c.cur].wg_group - pending;
  size_t done = 0;
  for (; done < p.wg.size() && (long)p.wg[done].group < limit; done++) {
    WgOp& o = p.wg[done];
    if (o.lanes != ~0u)
      report("divergent-warp", o.line, 0, "wgmma issued by %d lanes only", __builtin_popcount(o.lanes));
    else wg_evaluate(c, w, o);
    if (!c.check) continue;
    for (int l = 0; l < 32; l++) {
      u32* v = c.vc(w * 32 + l) + c.wslot(w);
      if (*v < o.clk) *v = o.clk;
    }
  }
  // An op still in flight on the registers of one that is done takes over their values, and they are poisoned again.
  for (size_t q = done; q < p.wg.size(); q++) {
    bool from_done = false, from_flight = false;
    for (size_t r = 0; r < q; r++) (r < done ? from_done : from_flight) |= p.wg[r].acc[0] == p.wg[q].acc[0];
    if (!p.wg[q].chained || !from_done || from_flight) continue;
    p.wg[q].chained = false;
    for (int l = 0; l < 32; l++) poison(p.wg[q], l, p.wg[q].acc[l]);
  }
  p.wg.erase(p.wg.begin(), p.wg.begin() + done);
  p.wg_base += done;
}
