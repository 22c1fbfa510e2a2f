// D[16,8] = A[16,32] B[32,8], element i of a register at byte i: layouts of m16n8k32 in the PTX ISA
#line 1 "unit_narrow.ph"
PH_DEVICE void narrow_operands(unsigned (&a)[4], unsigned (&b)[2], ph_global<const unsigned char> A, ph_global<const unsigned char> B) {
  const int lane = ph_tid(), g = lane >> 2, t = lane & 3;
  for (int i = 0; i < 16; i++) {
    const int row = (i < 4 || (i >= 8 && i < 12)) ? g : g + 8, col = t * 4 + (i & 3) + (i >= 8 ? 16 : 0);
    const unsigned x = A[row * 32 + col];
    a[i >> 2] = ((i & 3) ? a[i >> 2] : 0) | x << 8 * (i & 3);
  }
  for (int i = 0; i < 8; i++) {
    const int row = t * 4 + (i & 3) + (i >= 4 ? 16 : 0);
    const unsigned x = B[row * 8 + g];
    b[i >> 2] = ((i & 3) ? b[i >> 2] : 0) | x << 8 * (i & 3);
  }
}
#define NARROW(name, T, mma) \
  PH_KERNEL(32, 1) name(ph_global<const unsigned char> A, ph_global<const unsigned char> B, ph_global<T> D) { \
    const int lane = ph_tid(), g = lane >> 2, t = lane & 3; \
    unsigned a[4], b[2]; \
    T c[4] = {}; \
    narrow_operands(a, b, A, B); \
    mma(c, a, b); \
    for (int i = 0; i < 4; i++) D[(i < 2 ? g : g + 8) * 8 + t * 2 + (i & 1)] = c[i]; \
  }
NARROW(u_s8, int, ph_mma_s8)
NARROW(u_u8, int, ph_mma_u8)
NARROW(u_e4m3, float, ph_mma_e4m3)
NARROW(u_e5m2, float, ph_mma_e5m2)
