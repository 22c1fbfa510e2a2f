// part: atomic
// needs: core half math
// provides: ph_atomic_add ph_atomic_max ph_atomic_min ph_atomic_cas
// All return the old value. Maximum and minimum of floats propagate NaN. Compare-and-swap compares bits.
template<int BYTES> struct ph_atomic_bits;
template<> struct ph_atomic_bits<2> { typedef unsigned short type; };
template<> struct ph_atomic_bits<4> { typedef unsigned type; };
template<> struct ph_atomic_bits<8> { typedef ph_u64 type; };
template<class T> PH_I T ph_atomic_cas(T* p, ph_i64 i, T compare, T v) {
  typedef typename ph_atomic_bits<sizeof(T)>::type B;
  return ph_bits<T>(atomicCAS((B*)(p + i), ph_bits<B>(compare), ph_bits<B>(v)));
}
// p[i] = f(p[i], v) by compare-and-swap
template<class T, class F> PH_I T ph_atomic_by(T* p, ph_i64 i, T v, F f) {
  typedef typename ph_atomic_bits<sizeof(T)>::type B;
  B* const at = (B*)(p + i);
  B seen = *(volatile B*)at, old;
  do {
    old = seen;
    const B next = ph_bits<B>(f(ph_bits<T>(old), v));
    if (next == old) break;
    seen = atomicCAS(at, old, next);
  } while (seen != old);
  return ph_bits<T>(old);
}
struct ph_add_op {
  PH_I ph_half operator()(ph_half a, ph_half b) const { return ph_f2h(ph_h2f(a) + ph_h2f(b)); }
  PH_I ph_bf16 operator()(ph_bf16 a, ph_bf16 b) const { return ph_f2b(ph_b2f(a) + ph_b2f(b)); }
};
#define PH_EXTREME_OP(name) \
  struct name##_op { \
    PH_I ph_half operator()(ph_half a, ph_half b) const { return ph_f2h(name(ph_h2f(a), ph_h2f(b))); } \
    PH_I ph_bf16 operator()(ph_bf16 a, ph_bf16 b) const { return ph_f2b(name(ph_b2f(a), ph_b2f(b))); } \
    PH_I float operator()(float a, float b) const { return name(a, b); } \
    PH_I double operator()(double a, double b) const { return name(a, b); } \
  };
PH_EXTREME_OP(ph_max) PH_EXTREME_OP(ph_min)
#define PH_ATOMIC_NATIVE(name, builtin, T) PH_I T name(T* p, ph_i64 i, T v) { return builtin(p + i, v); }
#define PH_ATOMIC_LOOP(name, op, T) PH_I T name(T* p, ph_i64 i, T v) { return ph_atomic_by(p, i, v, op()); }
PH_ATOMIC_NATIVE(ph_atomic_add, atomicAdd, float) PH_ATOMIC_NATIVE(ph_atomic_add, atomicAdd, double)
PH_ATOMIC_NATIVE(ph_atomic_add, atomicAdd, int) PH_ATOMIC_NATIVE(ph_atomic_add, atomicAdd, unsigned)
PH_I ph_i64 ph_atomic_add(ph_i64* p, ph_i64 i, ph_i64 v) { return (ph_i64)atomicAdd((ph_u64*)(p + i), (ph_u64)v); }
PH_ATOMIC_LOOP(ph_atomic_add, ph_add_op, ph_half) PH_ATOMIC_LOOP(ph_atomic_add, ph_add_op, ph_bf16)
#define PH_ATOMIC_EXTREME(name, builtin, op) \
  PH_ATOMIC_NATIVE(name, builtin, int) PH_ATOMIC_NATIVE(name, builtin, unsigned) \
  PH_ATOMIC_NATIVE(name, builtin, ph_i64) \
  PH_ATOMIC_LOOP(name, op, float) PH_ATOMIC_LOOP(name, op, double) PH_ATOMIC_LOOP(name, op, ph_half) \
  PH_ATOMIC_LOOP(name, op, ph_bf16)
PH_ATOMIC_EXTREME(ph_atomic_max, atomicMax, ph_max_op) PH_ATOMIC_EXTREME(ph_atomic_min, atomicMin, ph_min_op)
