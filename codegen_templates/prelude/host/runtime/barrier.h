// Barriers and the meeting of a warp: every lane deposits its operands, the last one does the work for all 32 and goes
// on.
#pragma once
extern "C" {
int ph_rt_tid() { return tl->cur; }
int ph_rt_ctaid(int axis) { return tl->id[axis]; }
int ph_rt_nctaid(int axis) { return tl->job->grid[axis]; }
char* ph_rt_smem() { return tl->smem; }
}
extern "C" void ph_rt_bar(int id, int count, int wait, int line) {
  Cta& c = *tl;
  at_line(c, line);
  const int me = c.cur, w = me >> 5;
  Thread& t = c.th[me];
  const bool whole = count == 0;
  if (whole) count = c.T;
  if (id < 0 || id > 15 || count <= 0 || count % 32 || count > c.T) {
    report("barrier", line, 0, "bar %d with count %d in a block of %d threads", id, count, c.T);
    return;
  }
  Bar& b = c.bar[id];
  if (b.arrived == 0) {
    b.count = count;
    b.line = line;
    b.whole = whole;
    b.maxclk = 0;
    memset(b.waiting, 0, sizeof b.waiting);
    std::fill(b.vc.begin(), b.vc.end(), 0);
  } else if (b.count != count)
    report("barrier", line, b.line, "bar %d with count %d, but line %d waits at it with count %d", id, count, b.line,
           b.count);
  else if (whole && b.line != line)
    report("divergent-barrier", line, b.line,
           "the block-wide barrier of line %d is reached while other threads wait at the one of line %d", line, b.line);
  if (whole && c.alive < c.T)
    report("divergent-barrier", line, 0, "block-wide barrier after %d threads have exited", c.T - c.alive);
  if (c.check) {
    join(b.vc.data(), c.vc(me), c.VCN);
    if (t.clk > b.maxclk) b.maxclk = t.clk;
  }
  b.arrived++;
  if (b.arrived < b.count) {
    if (!wait) {
      if (c.check) tick(c, me, t.clk + 1);
      return;
    }
    b.waiting[w] |= 1u << (me & 31);
    block(c, "barrier", id, line);
    return;
  }
  const u32 clk = b.maxclk + 1;
  b.arrived = 0;
  if (wait) b.waiting[w] |= 1u << (me & 31);
  for (int q = 0; q < c.W; q++)
    for (u32 m = b.waiting[q]; m; m &= m - 1) {
      const int x = q * 32 + __builtin_ctz(m);
      c.wp[q].runnable |= 1u << (x & 31);
      if (c.check) {
        memcpy(c.vc(x), b.vc.data(), c.VCN * 4);
        tick(c, x, clk);
        c.th[x].reader_fence = false;
      }
    }
  if (c.check && !wait) tick(c, me, clk);
}

enum { OP_SYNC = 1, OP_SHFL, OP_LDMATRIX, OP_MMA, OP_WMMA, OP_WGWAIT };
static const char* op_name(int op) {
  static const char* names[] = {"", "syncwarp", "shuffle", "ldmatrix", "mma", "wmma", "wgmma.wait_group"};
  return names[op];
}
// True for the lane that does the work; for the others, when they go on, the work is done.
static bool meet(Cta& c, int op, int imm, int line) {
  at_line(c, line);
  const int w = c.cur >> 5;
  Warp& p = c.wp[w];
  if (!p.arrived) {
    p.op = op;
    p.imm = imm;
    p.line = line;
  } else if (p.op != op || p.imm != imm || p.line != line)
    report("divergent-warp", line, p.line, "%s at line %d while other lanes of the warp are at %s of line %d",
           op_name(op), line, op_name(p.op), p.line);
  if (p.alive != ~0u)
    report("divergent-warp", line, 0, "%s with %d lanes of the warp exited", op_name(op),
           32 - __builtin_popcount(p.alive));
  p.arrived |= 1u << (c.cur & 31);
  if (p.arrived != p.alive) {
    block(c, op_name(op), w, line);
    return false;
  }
  p.arrived = 0;
  p.seq++;
  p.runnable |= p.alive;
  return true;
}
extern "C" void ph_rt_syncwarp(int line) {
  Cta& c = *tl;
  const int w = c.cur >> 5;
  if (!meet(c, OP_SYNC, 0, line) || !c.check) return;
  u32 latest = 0;
  c.tmp.assign(c.VCN, 0);
  for (int x = w * 32; x < w * 32 + 32; x++) {
    join(c.tmp.data(), c.vc(x), c.VCN);
    if (c.th[x].clk > latest) latest = c.th[x].clk;
  }
  for (int x = w * 32; x < w * 32 + 32; x++) {
    memcpy(c.vc(x), c.tmp.data(), c.VCN * 4);
    tick(c, x, latest + 1);
  }
}
extern "C" ph_u64 ph_rt_shfl(ph_u64 bits, int kind, int arg, int line) {
  Cta& c = *tl;
  const int lane = c.cur & 31;
  Warp& p = c.wp[c.cur >> 5];
  const int q = p.seq & 1;  // a lane may be one collective ahead of another, not two
  p.slot[q][lane] = bits;
  meet(c, OP_SHFL, kind, line);
  const int s = kind == 0 ? lane ^ arg : kind == 1 ? lane - arg : kind == 2 ? lane + arg : arg & 31;
  return p.slot[q][s < 0 || s > 31 ? lane : s];
}
