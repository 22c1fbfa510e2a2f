// Threads of a block never preempt each other here, but two blocks may run on two cores.
#if PH_CHECK
template<class T> PH_I T* ph_atomic_at(ph_shared<T> p, long long i, int line) {
  return (T*)ph_rt_satomic(p.offset + i * (long long)sizeof(T), sizeof(T), line);
}
template<class T> PH_I T* ph_atomic_at(ph_global<T> p, long long i, int line) {
  return (T*)ph_rt_gatomic(p.t, p.at(i), sizeof(T), line);
}
#else
template<class T> PH_I T* ph_atomic_at(T* p, long long i, int) { return p + i; }
#endif
template<int BYTES> struct ph_atomic_bits;
template<> struct ph_atomic_bits<2> { typedef unsigned short type; };
template<> struct ph_atomic_bits<4> { typedef unsigned type; };
template<> struct ph_atomic_bits<8> { typedef ph_u64 type; };
template<class T, class F> PH_I T ph_atomic_by(T* p, T v, F f) {
  typedef typename ph_atomic_bits<sizeof(T)>::type B;
  B old = __atomic_load_n((B*)p, __ATOMIC_RELAXED), next;
  do next = ph_bits<B>(f(ph_bits<T>(old), v));
  while (!__atomic_compare_exchange_n((B*)p, &old, next, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return ph_bits<T>(old);
}
template<class P, class T> PH_I T ph_atomic_cas(P p, long long i, T compare, T v, PH_LN) {
  typedef typename ph_atomic_bits<sizeof(T)>::type B;
  B old = ph_bits<B>(compare);
  __atomic_compare_exchange_n((B*)ph_atomic_at(p, i, line), &old, ph_bits<B>(v), 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return ph_bits<T>(old);
}
#define PH_ATOMIC_NARROW(name, T, widen, narrow, expression) \
  template<class P> PH_I T name(P p, long long i, T v, PH_LN) { \
    return ph_atomic_by<T>(ph_atomic_at(p, i, line), v, [](T x, T y) -> T { \
      const float a = widen(x), b = widen(y); \
      return narrow(expression); \
    }); \
  }
#define PH_ATOMIC_PLAIN(name, T, expression) \
  template<class P> PH_I T name(P p, long long i, T v, PH_LN) { \
    return ph_atomic_by<T>(ph_atomic_at(p, i, line), v, [](T a, T b) -> T { return expression; }); \
  }
#define PH_ATOMIC(name, expression, wrapping) \
  PH_ATOMIC_PLAIN(name, float, expression) PH_ATOMIC_PLAIN(name, double, expression) \
  PH_ATOMIC_PLAIN(name, int, wrapping) \
  PH_ATOMIC_PLAIN(name, unsigned, wrapping) PH_ATOMIC_PLAIN(name, ph_i64, wrapping) \
  PH_ATOMIC_NARROW(name, ph_half, ph_h2f, ph_f2h, expression) \
  PH_ATOMIC_NARROW(name, ph_bf16, ph_b2f, ph_f2b, expression)
PH_ATOMIC(ph_atomic_add, a + b, (decltype(a + 0))((ph_u64)a + (ph_u64)b))
PH_ATOMIC(ph_atomic_max, ph_max(a, b), ph_max(a, b))
PH_ATOMIC(ph_atomic_min, ph_min(a, b), ph_min(a, b))
