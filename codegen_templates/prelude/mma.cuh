// part: mma
// needs: core
// provides: ph_ldmatrix_x1 ph_ldmatrix_x2 ph_ldmatrix_x4 ph_ldmatrix_x1_trans ph_ldmatrix_x2_trans ph_ldmatrix_x4_trans
// provides: ph_mma_f16 ph_mma_bf16 ph_mma_tf32 ph_mma_s8 ph_mma_u8 ph_mma_e4m3 ph_mma_e5m2
#define PH_LDMATRIX(suffix, modifier) \
  PH_I void ph_ldmatrix_x1##suffix(unsigned* r, unsigned at) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x1" modifier ".shared.b16 {%0}, [%1];" \
      : "=r"(r[0]) : "r"(at) : "memory"); \
  } \
  PH_I void ph_ldmatrix_x2##suffix(unsigned* r, unsigned at) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" modifier ".shared.b16 {%0,%1}, [%2];" \
      : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory"); \
  } \
  PH_I void ph_ldmatrix_x4##suffix(unsigned* r, unsigned at) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" modifier ".shared.b16 {%0,%1,%2,%3}, [%4];" \
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory"); \
  } \
  PH_I void ph_ldmatrix_x1##suffix(unsigned* r, const void* p) { ph_ldmatrix_x1##suffix(r, ph_soff(p)); } \
  PH_I void ph_ldmatrix_x2##suffix(unsigned* r, const void* p) { ph_ldmatrix_x2##suffix(r, ph_soff(p)); } \
  PH_I void ph_ldmatrix_x4##suffix(unsigned* r, const void* p) { ph_ldmatrix_x4##suffix(r, ph_soff(p)); }
PH_LDMATRIX(, "")
PH_LDMATRIX(_trans, ".trans")
// D = A B + D. `shape` and types make the instruction; four registers of A, two of B.
#define PH_MMA(name, shape_and_types, T, constraint) \
  PH_I void name(T* c, const unsigned* a, const unsigned* b) { \
    asm volatile("mma.sync.aligned." shape_and_types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : constraint(c[0]), constraint(c[1]), constraint(c[2]), constraint(c[3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
#if __CUDA_ARCH__ >= 800
PH_MMA(ph_mma_f16, "m16n8k16.row.col.f32.f16.f16.f32", float, "+f")
PH_MMA(ph_mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "+f")
PH_MMA(ph_mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "+f")
PH_MMA(ph_mma_s8, "m16n8k32.row.col.s32.s8.s8.s32", int, "+r")
PH_MMA(ph_mma_u8, "m16n8k32.row.col.s32.u8.u8.s32", int, "+r")
#else
// Turing: two instructions of half the depth, or four of an 8x8 tile, on the same registers
PH_I void ph_mma_f16(float* c, const unsigned* a, const unsigned* b) {
  for (int k = 0; k < 2; k++)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[k]));
}
#define PH_MMA_8BIT(name, type) \
  PH_I void name(int* c, const unsigned* a, const unsigned* b) { \
    for (int i = 0; i < 4; i++) \
      asm volatile("mma.sync.aligned.m8n8k16.row.col.s32." type "." type ".s32 {%0,%1}, {%2}, {%3}, {%0,%1};" \
        : "+r"(c[2 * (i & 1)]), "+r"(c[2 * (i & 1) + 1]) : "r"(a[i]), "r"(b[i >> 1])); \
  }
PH_MMA_8BIT(ph_mma_s8, "s8")
PH_MMA_8BIT(ph_mma_u8, "u8")
#endif
#if __CUDA_ARCH__ >= 890
PH_MMA(ph_mma_e4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32", float, "+f")
PH_MMA(ph_mma_e5m2, "m16n8k32.row.col.f32.e5m2.e5m2.f32", float, "+f")
#endif
