// Checked accesses to global memory. Regions that some argument writes have a shadow: per granule the last writer and
// its block, and the readers: one, or a list where several are not ordered among themselves.
#pragma once
struct Shadow {
  u32 *wblock, *rblock;
  u64 *wcell, *rcell;
  std::mutex mutex;
  std::unordered_map<u64, std::vector<std::pair<u32, u64>>> readers;  // of granules whose rblock is MANY
};
static const u32 MANY = ~0u;
static void make_shadow(ph_region& r) {
  r.shadow = nullptr;
  if (!r.shadowed) return;
  const u64 n = r.bytes / r.granule + 1;
  Shadow* s = new Shadow();
  s->wblock = (u32*)calloc(n, 4);
  s->rblock = (u32*)calloc(n, 4);
  s->wcell = (u64*)calloc(n, 8);
  s->rcell = (u64*)calloc(n, 8);
  r.shadow = s;
}
static bool in_global(Cta& c, ph_tensor* t, const void* p, u32 size, u32 align, int line, const char* what) {
  at_line(c, line);
  const long long offset = (const char*)p - t->base;
  if (offset < 0 || (u64)offset + size > t->bytes) {
    report("out-of-bounds", line, 0, "%s of %s bytes [%lld,%lld) (element %lld), the tensor has %llu bytes", what,
           t->name, offset, offset + size, offset / t->item - (offset % t->item < 0), (unsigned long long)t->bytes);
    return false;
  }
  if ((uintptr_t)p & (align - 1)) {
    report("misaligned", line, 0, "%s of %u bytes of %s at byte %lld (address %% 16 = %d)", what, size, t->name, offset,
           (int)((uintptr_t)p & 15));
    return false;
  }
  if (t->member)
    for (long long e = offset / t->item; e <= (offset + size - 1) / t->item; e++)
      if (!t->member[e]) {
        report("out-of-bounds", line, 0, "%s of %s at byte %lld, which is between the elements of the strided tensor",
               what, t->name, e * t->item);
        return false;
      }
  return true;
}
static void race_report(Cta& c, const char* what, ph_tensor* t, u64 e, const char* done, u32 block, u64 w, int line) {
  if (block != c.serial)
    report("race", line, line_of(w), "%s of %s element %llu, %s by another block (block %u thread %d at line %d)", what,
           t->name, (unsigned long long)e, done, block - 1, (int)(w & TID), line_of(w));
  else
    report("race", line, line_of(w), "%s of %s element %llu %s by %s with no synchronisation between", what, t->name,
           (unsigned long long)e, done, who(c, w).c_str());
}
static void global_access(Cta& c, ph_tensor* t, const void* p, u32 size, int line, bool write, u64 flag) {
  const ph_region& region = c.job->regions[t->region];
  Shadow* s = (Shadow*)region.shadow;
  if (!s) return;
  const char* what = flag ? "atomic" : write ? "write" : "read";
  const int me = c.cur;
  const u32* vc = c.vc(me);
  const u64 mine = cell(me, c.th[me].clk, line) | flag;
  const auto unordered = [&](u32 block, u64 w) {
    return block != c.serial || ((int)(w & TID) != me && vc[w & TID] < clk_of(w));
  };
  const u64 g0 = ((const char*)p - region.base) / region.granule,
            g1 = ((const char*)p - region.base + size - 1) / region.granule;
  for (u64 g = g0; g <= g1; g++) {
    const u64 e = (region.base + g * region.granule - t->base) / t->item;
    const u32 writer = __atomic_load_n(&s->wblock[g], __ATOMIC_ACQUIRE);
    const u64 w = s->wcell[g];
    if (!writer) {
      if ((!write || flag) && !region.init)
        report("uninitialized", line, 0, "%s of %s element %llu that nobody has written", what, t->name,
               (unsigned long long)e);
    } else if (!(w & flag & ATOMIC) && unordered(writer, w))
      race_report(c, what, t, e, write ? "also written" : "written", writer, w, line);
    const u32 reader = s->rblock[g];
    if (write) {
      if (reader == MANY) {
        std::lock_guard<std::mutex> guard(s->mutex);
        for (auto& r : s->readers[g])
          if (unordered(r.first, r.second)) {
            race_report(c, what, t, e, "read", r.first, r.second, line);
            break;
          }
        s->readers.erase(g);
      } else if (reader && unordered(reader, s->rcell[g]))
        race_report(c, what, t, e, "read", reader, s->rcell[g], line);
      s->rblock[g] = 0;
      s->wcell[g] = mine;  // before the block: another worker that sees the block sees this cell
      __atomic_store_n(&s->wblock[g], c.serial, __ATOMIC_RELEASE);
    } else if (!reader || (reader != MANY && !unordered(reader, s->rcell[g]))) {
      s->rcell[g] = mine;
      s->rblock[g] = c.serial;
    } else {
      std::lock_guard<std::mutex> guard(s->mutex);
      auto& list = s->readers[g];
      if (reader != MANY) list.assign(1, {reader, s->rcell[g]});
      // Kept: the readers of this block that do not come before this one, and one of another block (it races with any
      // later write).
      bool other_block = false;
      size_t n = 0;
      for (auto& r : list) {
        const bool other = r.first != c.serial;
        if (other ? other_block : !unordered(r.first, r.second)) continue;
        other_block |= other;
        list[n++] = r;
      }
      list.resize(n);
      list.push_back({c.serial, mine});
      s->rblock[g] = MANY;
    }
  }
}
extern "C" const void* ph_rt_gread(ph_tensor* t, const void* p, unsigned size, unsigned align, int kind, int line) {
  Cta& c = *tl;
  if (!in_global(c, t, p, size, align, line, "read")) return memset(dummy, 0, sizeof dummy);
  record(c, 0, false, t->index, (const char*)p - t->base, size, 0, line);
  if (kind == 1 && c.job->regions[t->region].shadowed)
    report("read-only", line, 0, "read-only load of %s, which this kernel may write", t->name);
  if (c.check) global_access(c, t, p, size, line, false, 0);
  return p;
}
static bool writable(ph_tensor* t, int line) {
  if (!t->writable) report("read-only", line, 0, "write to %s, which is an input", t->name);
  return t->writable;
}
extern "C" void* ph_rt_gwrite(ph_tensor* t, const void* p, unsigned size, unsigned align, int line) {
  Cta& c = *tl;
  if (!in_global(c, t, p, size, align, line, "write") || !writable(t, line)) return dummy;
  record(c, 0, true, t->index, (const char*)p - t->base, size, 0, line);
  if (c.check) global_access(c, t, p, size, line, true, 0);
  return (void*)p;
}
extern "C" void* ph_rt_gatomic(ph_tensor* t, const void* p, unsigned size, int line) {
  Cta& c = *tl;
  if (!in_global(c, t, p, size, size, line, "atomic") || !writable(t, line)) return memset(dummy, 0, sizeof dummy);
  record(c, 0, true, t->index, (const char*)p - t->base, size, 1, line);
  if (c.check) global_access(c, t, p, size, line, true, ATOMIC);
  return (void*)p;
}
// Elements of a tensor that no thread has written.
static long long count_unwritten(const ph_job& job, const ph_tensor& t) {
  const ph_region& region = job.regions[t.region];
  const Shadow* s = (const Shadow*)region.shadow;
  if (!s || !t.writable) return 0;
  long long n = 0;
  const int per = t.item / region.granule;
  const u64 first = (t.base - region.base) / region.granule;
  for (u64 e = 0; e < t.bytes / t.item; e++) {
    if (t.member && !t.member[e]) continue;
    bool whole = true;
    for (int k = 0; k < per; k++) whole &= s->wblock[first + e * per + k] != 0;
    n += !whole;
  }
  return n;
}
