// part: integer
// needs: core
// provides: ph_wrap_add ph_wrap_sub ph_wrap_mul ph_wrap_neg ph_shl ph_shr
// Serves both preludes. Integer arithmetic that wraps (signed overflow is undefined in C++, and the emulator reports it), and shifts
// as in PTX: a count at or above the width gives 0, or the sign.
template<class T> struct ph_unsigned { typedef unsigned type; };
template<> struct ph_unsigned<ph_i64> { typedef ph_u64 type; };
template<> struct ph_unsigned<ph_u64> { typedef ph_u64 type; };
#define PH_WRAP(name, op) \
  template<class T> PH_I T name(T a, T b) { \
    typedef typename ph_unsigned<T>::type U; \
    return (T)((U)a op (U)b); \
  }
PH_WRAP(ph_wrap_add, +) PH_WRAP(ph_wrap_sub, -) PH_WRAP(ph_wrap_mul, *)
template<class T> PH_I T ph_wrap_neg(T a) { return ph_wrap_sub(T(0), a); }
template<class T> PH_I T ph_shl(T a, T count) {
  typedef typename ph_unsigned<T>::type U;
  const T bits = (T)(8 * sizeof(T) - 1);
  return count < 0 || count > bits ? T(0) : (T)((U)a << (U)count);
}
template<class T> PH_I T ph_shr(T a, T count) {
  const T bits = (T)(8 * sizeof(T) - 1);
  return count < 0 || count > bits ? (T)(a < 0 ? -1 : 0) : (T)(a >> count);
}
