template<class P> PH_I P ph_origin(P p) { return p; }
#if PH_CHECK
#define PH_CP_ASYNC(bytes) \
  template<class T, class G> PH_I void ph_cp_async##bytes(ph_shared<T> dst, ph_global<G> src, bool ok = true, PH_LN) { \
    ph_rt_cp_async(ph_soff(dst), src.p, src.t, bytes, ok, line); \
  }
#else
#define PH_CP_ASYNC(bytes) \
  PH_I void ph_cp_async##bytes(void* dst, const void* src, bool ok = true, PH_LN) { \
    ph_rt_cp_async(ph_soff(dst), src, nullptr, bytes, ok, line); \
  }
#endif
PH_CP_ASYNC(16) PH_CP_ASYNC(8) PH_CP_ASYNC(4)
PH_I void ph_cp_commit(PH_LN) { ph_rt_cp_commit(line); }
template<int PENDING> PH_I void ph_cp_wait(PH_LN) { ph_rt_cp_wait(PENDING, line); }
