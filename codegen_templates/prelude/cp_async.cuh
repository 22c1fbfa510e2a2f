// part: cp_async
// needs: core
// provides: ph_origin ph_cp_async16 ph_cp_async8 ph_cp_async4 ph_cp_commit ph_cp_wait
// Hides where a pointer came from, so that it stays in registers and is not added up anew in every iteration.
template<class T> PH_I T* ph_origin(T* p) {
  asm("" : "+l"(p));
  return p;
}
// !ok writes zeros and reads nothing. Before sm_80 the copy is made at once, which every correct use allows.
#if __CUDA_ARCH__ >= 800
#define PH_CP_ASYNC(bytes, cache, R) \
  template<class T, class G> PH_I void ph_cp_async##bytes(T* dst, G* src, bool ok = true) { \
    asm volatile("cp.async." cache ".shared.global [%0], [%1], " #bytes ", %2;" \
      ::"r"(ph_soff(dst)), "l"(src), "r"(ok ? bytes : 0) : "memory"); \
  }
PH_I void ph_cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template<int PENDING> PH_I void ph_cp_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
#else
#define PH_CP_ASYNC(bytes, cache, R) \
  template<class T, class G> PH_I void ph_cp_async##bytes(T* dst, G* src, bool ok = true) { \
    R v = {}; \
    if (ok) v = *(const R*)src; \
    *(R*)dst = v; \
  }
PH_I void ph_cp_commit() {}
template<int PENDING> PH_I void ph_cp_wait() {}
#endif
PH_CP_ASYNC(16, "cg", uint4) PH_CP_ASYNC(8, "ca", uint2) PH_CP_ASYNC(4, "ca", unsigned)
