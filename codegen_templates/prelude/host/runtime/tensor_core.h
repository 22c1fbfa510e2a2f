// ldmatrix, mma.sync and wmma. With g = lane >> 2, t = lane & 3 the layouts are those of the PTX ISA, sections 9.7.14.5
// and 9.7.15.5.
#pragma once
extern "C" void ph_rt_ldmatrix(unsigned* r, unsigned offset, int num, int trans, int line) {
  Cta& c = *tl;
  const int w = c.cur >> 5, me = c.cur;
  Warp& p = c.wp[w];
  p.p[me & 31][0] = r;
  p.offset[me & 31] = offset;
  if (!meet(c, OP_LDMATRIX, num * 2 + trans, line)) return;
  unsigned short m[32][8];
  for (int l = 0; l < num * 8; l++) {
    c.cur = w * 32 + l;
    if (in_shared(c, (int)p.offset[l], 16, 16, line, "ldmatrix")) {
      record(c, 1, false, -1, p.offset[l], 16, 2, line);
      if (c.check) shadow_read(c, p.offset[l], 16, line, "ldmatrix");
      memcpy(m[l], c.smem + p.offset[l], 16);
    } else memset(m[l], 0, 16);
  }
  c.cur = me;
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < num; i++) {
      const int g = l >> 2, t = l & 3;
      ((unsigned*)p.p[l][0])[i] = trans ? m[8 * i + 2 * t][g] | (u32)m[8 * i + 2 * t + 1][g] << 16
                                        : m[8 * i + g][2 * t] | (u32)m[8 * i + g][2 * t + 1] << 16;
    }
}
// A of m16n8k16 and of wgmma: registers a0 .. a3
static inline void a_fragment(float A[16][16], const u32* a, int lane, int kind) {
  const int g = lane >> 2, t = lane & 3;
  for (int i = 0; i < 4; i++) {
    const int row = g + 8 * (i & 1), k = 2 * t + 8 * (i >> 1);
    A[row][k] = f16_of(kind, a[i]);
    A[row][k + 1] = f16_of(kind, a[i] >> 16);
  }
}
static float narrow_of(int kind, u32 word, int byte) {
  const unsigned char x = word >> (8 * byte);
  return kind == E4M3 ? e4m3_f(x) : e5m2_f(x);
}
extern "C" void ph_rt_mma(void* acc, const unsigned* a, const unsigned* b, int kind, int line) {
  Cta& c = *tl;
  Warp& p = c.wp[c.cur >> 5];
  void** q = p.p[c.cur & 31];
  q[0] = acc;
  q[1] = (void*)a;
  q[2] = (void*)b;
  if (!meet(c, OP_MMA, kind, line)) return;
  const bool integer = kind == S8 || kind == U8;
  const int K = kind == TF32 ? 8 : kind >= S8 ? 32 : 16;
  float A[16][32], B[32][8], C[16][8];
  int AI[16][32], BI[32][8];
  u32 CI[16][8];
  for (int l = 0; l < 32; l++) {
    const int g = l >> 2, t = l & 3;
    const u32 *ra = (u32*)p.p[l][1], *rb = (u32*)p.p[l][2];
    for (int i = 0; i < 4; i++) {
      const int row = g + 8 * (i & 1);
      if (kind == TF32) A[row][t + 4 * (i >> 1)] = bits_f(ra[i] & ~0x1fffu);  // the low 13 bits are ignored
      else if (kind >= S8)
        for (int j = 0; j < 4; j++) {
          const int k = 4 * t + 16 * (i >> 1) + j;
          if (integer)
            AI[row][k] = kind == S8 ? (int)(signed char)(ra[i] >> 8 * j) : (int)(unsigned char)(ra[i] >> 8 * j);
          else A[row][k] = narrow_of(kind, ra[i], j);
        }
      else
        for (int j = 0; j < 2; j++) A[row][2 * t + 8 * (i >> 1) + j] = f16_of(kind, ra[i] >> 16 * j);
    }
    for (int i = 0; i < 2; i++) {
      if (kind == TF32) B[t + 4 * i][g] = bits_f(rb[i] & ~0x1fffu);
      else if (kind >= S8)
        for (int j = 0; j < 4; j++) {
          const int k = 4 * t + 16 * i + j;
          if (integer)
            BI[k][g] = kind == S8 ? (int)(signed char)(rb[i] >> 8 * j) : (int)(unsigned char)(rb[i] >> 8 * j);
          else B[k][g] = narrow_of(kind, rb[i], j);
        }
      else
        for (int j = 0; j < 2; j++) B[2 * t + 8 * i + j][g] = f16_of(kind, rb[i] >> 16 * j);
    }
    for (int i = 0; i < 4; i++) {
      const int row = g + 8 * (i >> 1), col = 2 * t + (i & 1);
      if (integer) CI[row][col] = ((u32*)p.p[l][0])[i];
      else C[row][col] = ((float*)p.p[l][0])[i];
    }
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < K; k++)
      for (int j = 0; j < 8; j++)
        if (integer) CI[i][j] += (u32)(AI[i][k] * BI[k][j]);
        else C[i][j] += A[i][k] * B[k][j];
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      const int row = (l >> 2) + 8 * (i >> 1), col = 2 * (l & 3) + (i & 1);
      if (integer) ((u32*)p.p[l][0])[i] = CI[row][col];
      else ((float*)p.p[l][0])[i] = C[row][col];
    }
}
// kind: bit 0 bf16, bit 1 a column-major, bit 2 b column-major, bit 3 tf32; the fragments' permutations are those of the
// header
extern "C" void ph_rt_wmma(float* acc, const unsigned* a, const unsigned* b, int kind, int line) {
  Cta& c = *tl;
  Warp& p = c.wp[c.cur >> 5];
  void** q = p.p[c.cur & 31];
  q[0] = acc;
  q[1] = (void*)a;
  q[2] = (void*)b;
  if (!meet(c, OP_WMMA, kind, line)) return;
  float *A = c.A[0], *B = c.B[0], *C = c.D[0];
  const bool tf32 = kind & 8;
  const int pa = kind & 2 ? PH_WMMA_A_COL : PH_WMMA_A, pb = kind & 4 ? PH_WMMA_B_COL : PH_WMMA_B,
            pc = tf32 ? PH_WMMA_C_TF32 : PH_WMMA_C, type = kind & 1 ? BF16 : F16, registers = tf32 ? 4 : 8,
            depth = tf32 ? 8 : 16;
  for (int l = 0; l < 32; l++) {
    const u32 *ra = (u32*)p.p[l][1], *rb = (u32*)p.p[l][2];
    for (int e = 0; e < registers; e++) {
      // the low 13 bits of tf32 are ignored
      A[ph_wmma_pos(pa, l, e, registers)] = tf32 ? bits_f(ra[e] & ~0x1fffu) : f16_of(type, ra[e]);
      B[ph_wmma_pos(pb, l, e, registers)] = tf32 ? bits_f(rb[e] & ~0x1fffu) : f16_of(type, rb[e]);
    }
    for (int e = 0; e < 8; e++) C[ph_wmma_pos(pc, l, e)] = ((float*)p.p[l][0])[e];
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < depth; k++)
      for (int j = 0; j < 16; j++) C[i * 16 + j] += A[i * depth + k] * B[k * 16 + j];
  for (int l = 0; l < 32; l++)
    for (int e = 0; e < 8; e++) ((float*)p.p[l][0])[e] = C[ph_wmma_pos(pc, l, e)];
}
