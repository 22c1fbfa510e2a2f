template<class T> PH_I T ph_shuffle(T v, int kind, int arg, int line) {
  static_assert(sizeof(T) <= 8, "shuffles move up to 8 bytes");
  ph_u64 bits = 0;
  __builtin_memcpy(&bits, &v, sizeof(T));
  bits = ph_rt_shfl(bits, kind, arg, line);
  __builtin_memcpy(&v, &bits, sizeof(T));
  return v;
}
template<class T> PH_I T ph_shfl_xor(T v, int mask, PH_LN) { return ph_shuffle(v, 0, mask, line); }
template<class T> PH_I T ph_shfl_up(T v, int delta, PH_LN) { return ph_shuffle(v, 1, delta, line); }
template<class T> PH_I T ph_shfl_down(T v, int delta, PH_LN) { return ph_shuffle(v, 2, delta, line); }
template<class T> PH_I T ph_shfl_idx(T v, int lane, PH_LN) { return ph_shuffle(v, 3, lane, line); }
