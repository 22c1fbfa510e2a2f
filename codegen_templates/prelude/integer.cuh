// part: integer
// needs: core
// provides: ph_wrap_add ph_wrap_sub ph_wrap_mul ph_wrap_neg ph_idiv ph_imod ph_shl ph_shr
// Serves both preludes. Integer arithmetic with a result for every operand (C++ leaves signed overflow, division by
// zero and wide shifts undefined, the emulator reports them and hosts trap on some): sums and products wrap; x / 0 has
// all bits set, x % 0 is x, the least number by -1 wraps; a shift by the width or more, or by a negative count, gives
// 0, or the sign.
#define PH_WRAP(name, op) \
  template<class T> PH_I T name(T a, T b) { return (T)((ph_u64)a op (ph_u64)b); }
PH_WRAP(ph_wrap_add, +) PH_WRAP(ph_wrap_sub, -) PH_WRAP(ph_wrap_mul, *)
template<class T> PH_I T ph_wrap_neg(T a) { return (T)(0 - (ph_u64)a); }
template<class T> PH_I T ph_idiv(T a, T b) {
  return b == 0 ? (T)~(T)0 : (T)-1 < (T)0 && b == (T)-1 ? ph_wrap_neg(a) : (T)(a / b);
}
template<class T> PH_I T ph_imod(T a, T b) { return b == 0 ? a : (T)-1 < (T)0 && b == (T)-1 ? (T)0 : (T)(a % b); }
template<class T> PH_I T ph_shl(T a, T n) { return (ph_u64)n >= 8 * sizeof(T) ? (T)0 : (T)((ph_u64)a << n); }
template<class T> PH_I T ph_shr(T a, T n) { return (ph_u64)n < 8 * sizeof(T) ? (T)(a >> n) : a < (T)0 ? (T)-1 : (T)0; }
