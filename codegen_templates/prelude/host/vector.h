#if PH_CHECK
template<class V, class T> PH_I V ph_ldv(ph_shared<T> p, long long i, PH_LN) {
  V v;
  __builtin_memcpy(&v, ph_rt_sread(p.offset + i * (long long)sizeof(T), sizeof(V), alignof(V), line), sizeof(V));
  return v;
}
template<class V, class T> PH_I void ph_stv(ph_shared<T> p, long long i, V v, PH_LN) {
  static_assert(__is_trivially_copyable(V), "name the element type: a p[i] was passed as a value");
  __builtin_memcpy(ph_rt_swrite(p.offset + i * (long long)sizeof(T), sizeof(V), alignof(V), line), &v, sizeof(V));
}
template<class V, class T> PH_I V ph_ldv(ph_global<T> p, long long i, PH_LN) {
  V v;
  __builtin_memcpy(&v, ph_rt_gread(p.t, p.at(i), sizeof(V), alignof(V), 0, line), sizeof(V));
  return v;
}
template<class V, class T> PH_I void ph_stv(ph_global<T> p, long long i, V v, PH_LN) {
  static_assert(__is_trivially_copyable(V), "name the element type: a p[i] was passed as a value");
  __builtin_memcpy(ph_rt_gwrite(p.t, p.at(i), sizeof(V), alignof(V), line), &v, sizeof(V));
}
template<class V, class T> PH_I V ph_ldgv(ph_global<T> p, long long i, PH_LN) {
  V v;
  __builtin_memcpy(&v, ph_rt_gread(p.t, p.at(i), sizeof(V), alignof(V), 1, line), sizeof(V));
  return v;
}
template<class T> PH_I typename ph_plain<T>::type ph_ldg(ph_global<T> p, long long i, PH_LN) {
  return ph_ldgv<typename ph_plain<T>::type>(p, i, line);
}
template<class V> PH_I V ph_ldp(unsigned at, PH_LN) {
  V v;
  __builtin_memcpy(&v, ph_rt_sread(at, sizeof(V), 16, line), sizeof(V));
  return v;
}
#else
template<class V> PH_I V ph_ldp(unsigned at, int = 0) {
  V v;
  __builtin_memcpy(&v, ph_rt_smem() + at, sizeof(V));
  return v;
}
template<class V, class T> PH_I V ph_ldv(T* p, long long i, int = 0) {
  V v;
  __builtin_memcpy(&v, p + i, sizeof(V));
  return v;
}
template<class V, class T> PH_I void ph_stv(T* p, long long i, V v, int = 0) { __builtin_memcpy(p + i, &v, sizeof(V)); }
template<class V, class T> PH_I V ph_ldgv(T* p, long long i, int = 0) { return ph_ldv<V>(p, i); }
template<class T> PH_I T ph_ldg(T* p, long long i, int = 0) { return p[i]; }
#endif
template<class T> PH_I unsigned ph_place(ph_shared<T> p) { return ph_soff(p); }
