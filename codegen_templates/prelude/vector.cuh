// part: vector
// needs: core
// provides: ph_ldv ph_stv ph_ldg ph_ldgv ph_place ph_ldp
// One access instruction for each vector: the bits travel as a built-in type of that size.
template<int BYTES> struct ph_raw;
template<> struct ph_raw<1> { typedef unsigned char type; };
template<> struct ph_raw<2> { typedef unsigned short type; };
template<> struct ph_raw<4> { typedef unsigned type; };
template<> struct ph_raw<8> { typedef uint2 type; };
template<> struct ph_raw<16> { typedef uint4 type; };
template<class V, class T> PH_I V ph_ldv(T* p, ph_i64 i) {
  return ph_bits<V>(*(const typename ph_raw<sizeof(V)>::type*)(p + i));
}
template<class V, class T> PH_I void ph_stv(T* p, ph_i64 i, V v) {
  typedef typename ph_raw<sizeof(V)>::type R;
  *(R*)(p + i) = ph_bits<R>(v);
}
// read-only for the whole launch (ld.global.nc)
template<class T> PH_I typename ph_plain<T>::type ph_ldg(T* p, ph_i64 i) {
  typedef typename ph_plain<T>::type V;
  return ph_bits<V>(__ldg((const typename ph_raw<sizeof(V)>::type*)(p + i)));
}
template<class V, class T> PH_I V ph_ldgv(T* p, ph_i64 i) {
  return ph_bits<V>(__ldg((const typename ph_raw<sizeof(V)>::type*)(p + i)));
}
// A place in shared memory in bytes, to which the stage of a ring is added. It hides where it came from: what is added
// up in elements is scaled in every iteration (10 instructions of a GEMM's loop, 3 % on an H200).
PH_I unsigned ph_place(const void* p) {
  unsigned at;
  asm("mov.u32 %0, %1;" : "=r"(at) : "r"(ph_soff(p)));
  return at;
}
// 16 bytes at a place. Volatile, so that it stays among the products where it was put.
template<class V> PH_I V ph_ldp(unsigned at) {
  static_assert(sizeof(V) == 16, "one access of 16 bytes");
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
  return ph_bits<V>(v);
}
