// part: core
// needs:
// provides: PH_KERNEL PH_KERNEL_REGS PH_DEVICE PH_UNROLL PH_UNROLL_N PH_NO_UNROLL PH_RESTRICT PH_LIKELY
// provides: PH_GUARD PH_TENSORMAP
// provides: ph_half ph_bf16 ph_f8e4m3 ph_f8e5m2 ph_i64 ph_u64 ph_vec ph_tmap ph_global ph_shared ph_smem ph_soff
// provides: ph_tid ph_ctaid_x ph_ctaid_y ph_ctaid_z ph_nctaid_x ph_nctaid_y ph_nctaid_z
// provides: ph_bits ph_syncthreads ph_syncwarp ph_bar_sync ph_bar_arrive
#define PH_I __device__ __forceinline__
#define PH_PRAGMA(text) _Pragma(#text)
#define PH_KERNEL(threads, min_blocks) extern "C" __global__ void __launch_bounds__(threads, min_blocks)
// A register cap and launch bounds exclude each other in CUDA C++; the cap includes what min_blocks resident blocks
// allow.
#define PH_KERNEL_REGS(threads, min_blocks, max_regs) \
  extern "C" __global__ void __maxnreg__(65536 / ((threads) * (min_blocks)) / 8 * 8 < (max_regs) \
    ? 65536 / ((threads) * (min_blocks)) / 8 * 8 : (max_regs))
#define PH_DEVICE static __device__ __forceinline__
#define PH_UNROLL _Pragma("unroll")
#define PH_UNROLL_N(n) PH_PRAGMA(unroll n)
#define PH_NO_UNROLL _Pragma("unroll 1")
#define PH_RESTRICT __restrict__
#define PH_LIKELY(x) __builtin_expect(!!(x), 1)
// Marks the condition of a mask; a mutation test replaces one at a time.
#define PH_GUARD(x) (x)
#define PH_TENSORMAP const __grid_constant__ ph_tmap
typedef long long ph_i64;
typedef unsigned long long ph_u64;
struct ph_half { unsigned short x; };
struct ph_bf16 { unsigned short x; };
struct ph_f8e4m3 { unsigned char x; };
struct ph_f8e5m2 { unsigned char x; };
template<class T, int N> struct alignas(N * sizeof(T)) ph_vec { T v[N]; };
struct alignas(64) ph_tmap { ph_u64 x[16]; };
template<class T> using ph_global = T*;
template<class T> using ph_shared = T*;
template<class T> struct ph_plain { typedef T type; };
template<class T> struct ph_plain<const T> { typedef T type; };
template<class To, class From> PH_I To ph_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are copied between types of one size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}
#ifdef PH_SHARED_DYNAMIC
extern __shared__ __align__(1024) unsigned char ph_smem_base[];
#elif defined(PH_SHARED_BYTES)
__shared__ __align__(PH_SHARED_ALIGN) unsigned char ph_smem_base[PH_SHARED_BYTES];
#endif
#if defined(PH_SHARED_DYNAMIC) || defined(PH_SHARED_BYTES)
template<class T> PH_I T* ph_smem(unsigned byte_offset) { return (T*)(ph_smem_base + byte_offset); }
#endif
PH_I unsigned ph_soff(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
PH_I int ph_tid() { return threadIdx.x; }
PH_I int ph_ctaid_x() { return blockIdx.x; }
PH_I int ph_ctaid_y() { return blockIdx.y; }
PH_I int ph_ctaid_z() { return blockIdx.z; }
PH_I int ph_nctaid_x() { return gridDim.x; }
PH_I int ph_nctaid_y() { return gridDim.y; }
PH_I int ph_nctaid_z() { return gridDim.z; }
PH_I void ph_syncthreads() { __syncthreads(); }
PH_I void ph_syncwarp() { __syncwarp(); }
PH_I void ph_bar_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
PH_I void ph_bar_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
