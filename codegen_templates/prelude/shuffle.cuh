// part: shuffle
// needs: core
// provides: ph_shfl_xor ph_shfl_up ph_shfl_down ph_shfl_idx
template<int BYTES> struct ph_lane_bits;
template<> struct ph_lane_bits<1> { typedef unsigned char type; };
template<> struct ph_lane_bits<2> { typedef unsigned short type; };
template<> struct ph_lane_bits<4> { typedef unsigned type; };
template<> struct ph_lane_bits<8> { typedef ph_u64 type; };
#define PH_SHUFFLE(name, builtin) \
  template<class T> PH_I T name(T v, int arg) { \
    typedef typename ph_lane_bits<sizeof(T)>::type B; \
    if constexpr (sizeof(T) == 8) return ph_bits<T>(builtin(~0u, ph_bits<ph_u64>(v), arg)); \
    else return ph_bits<T>((B)builtin(~0u, (unsigned)ph_bits<B>(v), arg)); \
  }
PH_SHUFFLE(ph_shfl_xor, __shfl_xor_sync)
PH_SHUFFLE(ph_shfl_up, __shfl_up_sync)
PH_SHUFFLE(ph_shfl_down, __shfl_down_sync)
PH_SHUFFLE(ph_shfl_idx, __shfl_sync)
