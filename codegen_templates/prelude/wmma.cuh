// part: wmma
// needs: core vector
// provides: ph_wmma_a ph_wmma_b ph_wmma_c ph_wmma_c_tf32 ph_wmma_load_a ph_wmma_load_b ph_wmma_load_c ph_wmma_store
// provides: ph_wmma_fill ph_wmma_mma
// 16x16x16, for tf32 (T float) 16x16x8, f32 accumulator. Fragments are opaque; the memory layout of a and b is part of
// load and product, so it is in their types. Accumulators of different shapes are different types. OFFSET (in elements) is
// part of the load instruction: loads from one pointer share one address computation.
template<class T, bool COL> struct ph_wmma_a { unsigned x[8]; };
template<class T, bool COL> struct ph_wmma_b { unsigned x[8]; };
struct ph_wmma_c { float x[8]; };
struct ph_wmma_c_tf32 { float x[8]; };
#define PH_R8 "{%0,%1,%2,%3,%4,%5,%6,%7}"
#define PH_O8(f, c) c(f.x[0]), c(f.x[1]), c(f.x[2]), c(f.x[3]), c(f.x[4]), c(f.x[5]), c(f.x[6]), c(f.x[7])
#define PH_O4(f, c) c(f.x[0]), c(f.x[1]), c(f.x[2]), c(f.x[3])
#define PH_WMMA_LOAD(operand, COL, layout) \
  template<int OFFSET = 0> \
  PH_I void ph_wmma_load_##operand(ph_wmma_##operand<ph_half, COL>& f, const ph_half* p, int ld) { \
    asm volatile("wmma.load." #operand ".sync.aligned." layout ".m16n16k16.shared.f16 " PH_R8 ", [%8+%10], %9;" \
      : PH_O8(f, "=r") : "r"(ph_soff(p)), "r"(ld), "n"(OFFSET * 2) : "memory"); \
  }
#define PH_WMMA_LOAD_BF16(operand, COL, layout) \
  template<int OFFSET = 0> \
  PH_I void ph_wmma_load_##operand(ph_wmma_##operand<ph_bf16, COL>& f, const ph_bf16* p, int ld) { \
    asm volatile("wmma.load." #operand ".sync.aligned." layout ".m16n16k16.shared.bf16 {%0,%1,%2,%3}, [%4+%6], %5;" \
      : PH_O4(f, "=r") : "r"(ph_soff(p)), "r"(ld), "n"(OFFSET * 2) : "memory"); \
  }
#define PH_WMMA_MMA(COLA, COLB, layouts) \
  PH_I void ph_wmma_mma(ph_wmma_c& c, const ph_wmma_a<ph_half, COLA>& a, const ph_wmma_b<ph_half, COLB>& b) { \
    asm volatile("wmma.mma.sync.aligned." layouts ".m16n16k16.f32.f32 " PH_R8 ", {%8,%9,%10,%11,%12,%13,%14,%15}, " \
      "{%16,%17,%18,%19,%20,%21,%22,%23}, " PH_R8 ";" : PH_O8(c, "+f") : PH_O8(a, "r"), PH_O8(b, "r")); \
  }
#define PH_WMMA_MMA_BF16(COLA, COLB, layouts) \
  PH_I void ph_wmma_mma(ph_wmma_c& c, const ph_wmma_a<ph_bf16, COLA>& a, const ph_wmma_b<ph_bf16, COLB>& b) { \
    asm volatile("wmma.mma.sync.aligned." layouts ".m16n16k16.f32.bf16.bf16.f32 " PH_R8 \
      ", {%8,%9,%10,%11}, {%12,%13,%14,%15}, " \
      PH_R8 ";" : PH_O8(c, "+f") : PH_O4(a, "r"), PH_O4(b, "r")); \
  }
#define PH_WMMA_LOAD_TF32(operand, COL, layout) \
  template<int OFFSET = 0> \
  PH_I void ph_wmma_load_##operand(ph_wmma_##operand<float, COL>& f, const float* p, int ld) { \
    asm volatile("wmma.load." #operand ".sync.aligned." layout ".m16n16k8.shared.tf32 {%0,%1,%2,%3}, [%4+%6], %5;" \
      : PH_O4(f, "=r") : "r"(ph_soff(p)), "r"(ld), "n"(OFFSET * 4) : "memory"); \
  }
#define PH_WMMA_MMA_TF32(COLA, COLB, layouts) \
  PH_I void ph_wmma_mma(ph_wmma_c_tf32& c, const ph_wmma_a<float, COLA>& a, const ph_wmma_b<float, COLB>& b) { \
    asm volatile("wmma.mma.sync.aligned." layouts ".m16n16k8.f32.tf32.tf32.f32 " PH_R8 \
      ", {%8,%9,%10,%11}, {%12,%13,%14,%15}, " \
      PH_R8 ";" : PH_O8(c, "+f") : PH_O4(a, "r"), PH_O4(b, "r")); \
  }
#define PH_WMMA_C(C, shape) \
  PH_I void ph_wmma_fill(C& f, float v) { \
    for (int i = 0; i < 8; i++) f.x[i] = v; \
  } \
  PH_I void ph_wmma_load_c(C& f, const float* p, int ld) { \
    asm volatile("wmma.load.c.sync.aligned.row." shape ".shared.f32 " PH_R8 ", [%8], %9;" \
      : PH_O8(f, "=f") : "r"(ph_soff(p)), "r"(ld) : "memory"); \
  } \
  PH_I void ph_wmma_store(float* p, int ld, const C& f) { \
    asm volatile("wmma.store.d.sync.aligned.row." shape ".shared.f32 [%8], " PH_R8 ", %9;" \
      ::PH_O8(f, "f"), "r"(ph_soff(p)), "r"(ld) : "memory"); \
  }
PH_WMMA_C(ph_wmma_c, "m16n16k16")
PH_WMMA_LOAD(a, false, "row") PH_WMMA_LOAD(a, true, "col") PH_WMMA_LOAD(b, false, "row") PH_WMMA_LOAD(b, true, "col")
PH_WMMA_MMA(false, false, "row.row") PH_WMMA_MMA(false, true, "row.col")
PH_WMMA_MMA(true, false, "col.row") PH_WMMA_MMA(true, true, "col.col")
#if __CUDA_ARCH__ >= 800
PH_WMMA_LOAD_BF16(a, false, "row") PH_WMMA_LOAD_BF16(a, true, "col")
PH_WMMA_LOAD_BF16(b, false, "row") PH_WMMA_LOAD_BF16(b, true, "col")
PH_WMMA_MMA_BF16(false, false, "row.row") PH_WMMA_MMA_BF16(false, true, "row.col")
PH_WMMA_MMA_BF16(true, false, "col.row") PH_WMMA_MMA_BF16(true, true, "col.col")
PH_WMMA_C(ph_wmma_c_tf32, "m16n16k8")
PH_WMMA_LOAD_TF32(a, false, "row") PH_WMMA_LOAD_TF32(a, true, "col")
PH_WMMA_LOAD_TF32(b, false, "row") PH_WMMA_LOAD_TF32(b, true, "col")
PH_WMMA_MMA_TF32(false, false, "row.row") PH_WMMA_MMA_TF32(false, true, "row.col")
PH_WMMA_MMA_TF32(true, false, "col.row") PH_WMMA_MMA_TF32(true, true, "col.col")
#endif
