// The host side of the ph_* helpers: what stands in front of an emitted text when a C++ compiler builds it for the
// emulator. No #include on purpose: parsing the standard library costs more than compiling a kernel. All state and all
// heavy work is behind the functions ph_rt_*, compiled once (runtime/). Helpers that can be at fault take `int line =
// __builtin_LINE()` last, so the #line of the emitted text becomes the line of a report.
#ifndef PH_CHECK
#define PH_CHECK 1  // 0: ph_shared<T> and ph_global<T> are T*, as on the GPU
#endif
#define PH_HOST 1
#define PH_I inline __attribute__((always_inline))
#define PH_LN int line = __builtin_LINE()
#define PH_KERNEL(threads, min_blocks) static void
#define PH_KERNEL_REGS(threads, min_blocks, max_regs) static void
#define PH_DEVICE static inline
#define PH_UNROLL
#define PH_UNROLL_N(n)
#define PH_NO_UNROLL
#define PH_RESTRICT
#define PH_LIKELY(x) __builtin_expect(!!(x), 1)
// Marks the condition of a mask; a mutation test replaces one at a time.
#define PH_GUARD(x) (x)
#define PH_TENSORMAP const ph_tmap
typedef long long ph_i64;
typedef unsigned long long ph_u64;
struct ph_half { unsigned short x; };
struct ph_bf16 { unsigned short x; };
struct ph_f8e4m3 { unsigned char x; };
struct ph_f8e5m2 { unsigned char x; };
template<class T, int N> struct alignas(N * sizeof(T)) ph_vec { T v[N]; };

struct ph_tensor;  // extent and shadow of one argument
struct ph_tmap {   // TMA tensor map of two dimensions, inner one first
  char* base;
  ph_tensor* t;
  int dim[2], box[2];
  ph_u64 stride;  // bytes between rows
  int item, swizzle;
};

extern "C" {
int ph_rt_tid();
int ph_rt_ctaid(int axis);
int ph_rt_nctaid(int axis);
char* ph_rt_smem();
// Checked access: where to read or write; a place without meaning after a report. kind: 0 plain, 1 read-only path.
const void* ph_rt_sread(long long offset, unsigned size, unsigned align, int line);
void* ph_rt_swrite(long long offset, unsigned size, unsigned align, int line);
const void* ph_rt_gread(ph_tensor*, const void* p, unsigned size, unsigned align, int kind, int line);
void* ph_rt_gwrite(ph_tensor*, const void* p, unsigned size, unsigned align, int line);
void* ph_rt_satomic(long long offset, unsigned size, int line);
void* ph_rt_gatomic(ph_tensor*, const void* p, unsigned size, int line);
void ph_rt_bar(int id, int count, int wait, int line);  // count 0: the whole block
void ph_rt_syncwarp(int line);
ph_u64 ph_rt_shfl(ph_u64 bits, int kind, int arg, int line);  // kind 0 xor, 1 up, 2 down, 3 idx
void ph_rt_ldmatrix(unsigned* r, unsigned offset, int num, int trans, int line);
void ph_rt_mma(void* c, const unsigned* a, const unsigned* b, int kind, int line);
void ph_rt_wmma(float* c, const unsigned* a, const unsigned* b, int kind, int line);
void ph_rt_cp_async(unsigned dst, const void* src, ph_tensor* t, unsigned bytes, int ok, int line);
void ph_rt_cp_commit(int line);
void ph_rt_cp_wait(int pending, int line);
void ph_rt_mbar_init(unsigned offset, int count, int line);
void ph_rt_mbar_arrive(unsigned offset, unsigned tx, int count, int line);
int ph_rt_mbar_wait(unsigned offset, int parity, int line);
void ph_rt_tma_load(unsigned dst, const ph_tmap* map, int c0, int c1, unsigned mbar, int line);
void ph_rt_fence_proxy(int line);
void ph_rt_fence_mbar(int line);
void ph_rt_wg_fence(int line);
void ph_rt_wg_commit(int line);
void ph_rt_wg_wait(int pending, int line);
void ph_rt_wgmma(float* d, const unsigned* a_regs, ph_u64 a_desc, ph_u64 b_desc, int n, int trans_b, int scale_d,
                 int kind, int line);
unsigned short ph_rt_f2h(float);
float ph_rt_h2f(unsigned short);
float ph_rt_d2f_rz(double);
float ph_rt_ll2f_rz(long long);
void ph_rt_printf(const char* format, ...);
void ph_rt_assert_fail(const char* text, int line);
void ph_rt_fault(const char* kind, const char* text, int line);
}

template<class To, class From> PH_I To ph_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are copied between types of one size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}
template<class T> struct ph_plain { typedef T type; };
template<class T> struct ph_plain<const T> { typedef T type; };

// ---- pointers
#if PH_CHECK
struct ph_index {  // implicit conversion from an integer: carries the source line into operator[]
  long long i;
  int line;
  PH_I ph_index(int v, PH_LN) : i(v), line(line) {}
  PH_I ph_index(unsigned v, PH_LN) : i(v), line(line) {}
  PH_I ph_index(long v, PH_LN) : i(v), line(line) {}
  PH_I ph_index(unsigned long v, PH_LN) : i((long long)v), line(line) {}
  PH_I ph_index(long long v, PH_LN) : i(v), line(line) {}
  PH_I ph_index(ph_u64 v, PH_LN) : i((long long)v), line(line) {}
};
#define PH_REFERENCE_OPS \
  PH_I void operator+=(V v) const { *this = (V) * this + v; } \
  PH_I void operator-=(V v) const { *this = (V) * this - v; } \
  PH_I void operator*=(V v) const { *this = (V) * this * v; } \
  PH_I void operator/=(V v) const { *this = (V) * this / v; }
template<class T> struct ph_sref {  // what p[i] is: reads on conversion, writes on assignment
  typedef typename ph_plain<T>::type V;
  long long offset;
  int line;
  PH_I operator V() const {
    V v;
    __builtin_memcpy(&v, ph_rt_sread(offset, sizeof(V), alignof(V), line), sizeof(V));
    return v;
  }
  PH_I void operator=(V v) const { __builtin_memcpy(ph_rt_swrite(offset, sizeof(V), alignof(V), line), &v, sizeof(V)); }
  PH_I void operator=(const ph_sref& other) const { *this = (V)other; }
  PH_REFERENCE_OPS
};
template<class T> struct ph_gref {
  typedef typename ph_plain<T>::type V;
  ph_tensor* t;
  T* p;
  int line;
  PH_I operator V() const {
    V v;
    __builtin_memcpy(&v, ph_rt_gread(t, p, sizeof(V), alignof(V), 0, line), sizeof(V));
    return v;
  }
  PH_I void operator=(V v) const {
    static_assert(__is_same(V, T), "a store through a pointer to const");
    __builtin_memcpy(ph_rt_gwrite(t, p, sizeof(V), alignof(V), line), &v, sizeof(V));
  }
  PH_I void operator=(const ph_gref& other) const { *this = (V)other; }
  PH_REFERENCE_OPS
};
template<class T> struct ph_shared {
  long long offset;
  PH_I ph_sref<T> operator[](ph_index i) const { return {offset + i.i * (long long)sizeof(T), i.line}; }
  PH_I ph_shared operator+(long long i) const { return {offset + i * (long long)sizeof(T)}; }
  PH_I operator ph_shared<const T>() const { return {offset}; }
};
template<class T> struct ph_shared<const T> {
  long long offset;
  PH_I ph_sref<const T> operator[](ph_index i) const { return {offset + i.i * (long long)sizeof(T), i.line}; }
  PH_I ph_shared operator+(long long i) const { return {offset + i * (long long)sizeof(T)}; }
};
// The layout is that of a pointer argument: address, then tensor. Addresses are integers, so that one outside the
// tensor is harmless.
template<class T> struct ph_global {
  T* p;
  ph_tensor* t;
  PH_I T* at(long long i) const { return (T*)((ph_u64)p + (ph_u64)i * sizeof(T)); }
  PH_I ph_gref<T> operator[](ph_index i) const { return {t, at(i.i), i.line}; }
  PH_I ph_global operator+(long long i) const { return {at(i), t}; }
  PH_I operator ph_global<const T>() const { return {p, t}; }
};
template<class T> struct ph_global<const T> {
  const T* p;
  ph_tensor* t;
  PH_I const T* at(long long i) const { return (const T*)((ph_u64)p + (ph_u64)i * sizeof(T)); }
  PH_I ph_gref<const T> operator[](ph_index i) const { return {t, at(i.i), i.line}; }
  PH_I ph_global operator+(long long i) const { return {at(i), t}; }
};
template<class T> PH_I unsigned ph_soff(ph_shared<T> p) { return (unsigned)p.offset; }
template<class T> PH_I ph_shared<T> ph_smem(unsigned byte_offset) { return {(long long)byte_offset}; }
#else
template<class T> using ph_shared = T*;
template<class T> using ph_global = T*;
PH_I unsigned ph_soff(const void* p) { return (unsigned)((const char*)p - ph_rt_smem()); }
template<class T> PH_I T* ph_smem(unsigned byte_offset) { return (T*)(ph_rt_smem() + byte_offset); }
#endif

// ---- threads
PH_I int ph_tid() { return ph_rt_tid(); }
PH_I int ph_ctaid_x() { return ph_rt_ctaid(0); }
PH_I int ph_ctaid_y() { return ph_rt_ctaid(1); }
PH_I int ph_ctaid_z() { return ph_rt_ctaid(2); }
PH_I int ph_nctaid_x() { return ph_rt_nctaid(0); }
PH_I int ph_nctaid_y() { return ph_rt_nctaid(1); }
PH_I int ph_nctaid_z() { return ph_rt_nctaid(2); }
PH_I void ph_syncthreads(PH_LN) { ph_rt_bar(0, 0, 1, line); }
PH_I void ph_syncwarp(PH_LN) { ph_rt_syncwarp(line); }
PH_I void ph_bar_sync(int id, int threads, PH_LN) { ph_rt_bar(id, threads, 1, line); }
PH_I void ph_bar_arrive(int id, int threads, PH_LN) { ph_rt_bar(id, threads, 0, line); }

// ---- entry: args[i] points at the i-th parameter, as in cuLaunchKernel
template<int... I> struct ph_seq {};
template<int N, int... I> struct ph_make : ph_make<N - 1, N - 1, I...> {};
template<int... I> struct ph_make<0, I...> { typedef ph_seq<I...> type; };
template<class... P, int... I> PH_I void ph_call(void (*f)(P...), void** args, ph_seq<I...>) { f(*(P*)args[I]...); }
template<class... P> PH_I void ph_call(void (*f)(P...), void** args) {
  ph_call(f, args, typename ph_make<sizeof...(P)>::type());
}
#define PH_EXPORT(name) \
  extern "C" __attribute__((visibility("default"))) void ph_entry(void** args) { ph_call(&name, args); }
