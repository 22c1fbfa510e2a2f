// memory access of every type and width; the types are the argument's
#line 1 "unit_types.ph"
// Y[0..] by scalars, Y[64..] by vectors of N, reversed through shared memory
template<class T, int N> PH_DEVICE void copies(ph_global<const T> X, ph_global<T> Y) {
  const int tid = ph_tid();
  const ph_shared<T> s = ph_smem<T>(0);
  if (tid < 64) {
    const T x = X[tid];
    Y[tid] = x;
  }
  if (tid < 64 / N) {
    const ph_vec<T, N> v = ph_ldv<ph_vec<T, N>>(X, tid * N);
    ph_stv(s, (64 / N - 1 - tid) * N, v);
  }
  ph_syncthreads();
  if (tid < 64 / N) {
    const ph_vec<T, N> w = ph_ldv<ph_vec<T, N>>(s, tid * N);
    ph_stv<ph_vec<T, N>>(Y + 64, tid * N, w);
    const ph_vec<T, N> r = ph_ldgv<ph_vec<T, N>>(X + N, tid * N - N);
    ph_stv(Y, 128 + tid * N, r);
    PH_UNROLL for (int i = 0; i < N; i++) {
      const T e = ph_ldg(X, tid * N + i);
      Y[192 + tid * N + i] = e;
    }
  }
  ph_syncthreads();
}
PH_KERNEL(64, 1) u_copies(ph_global<const float> A, ph_global<float> AY, ph_global<const double> B, ph_global<double> BY,
                          ph_global<const ph_half> C, ph_global<ph_half> CY, ph_global<const unsigned char> D,
                          ph_global<unsigned char> DY, ph_global<const ph_i64> E, ph_global<ph_i64> EY, ph_global<const bool> F,
                          ph_global<bool> FY, ph_global<const ph_f8e4m3> G, ph_global<ph_f8e4m3> GY) {
  copies<float, 4>(A, AY);
  copies<double, 2>(B, BY);
  copies<ph_half, 8>(C, CY);
  copies<unsigned char, 16>(D, DY);
  copies<ph_i64, 1>(E, EY);
  copies<bool, 8>(F, FY);
  copies<ph_f8e4m3, 2>(G, GY);
}
PH_KERNEL(96, 1) u_grid(ph_global<int> Y, int n) {
  const int block = ph_ctaid_x() + ph_nctaid_x() * (ph_ctaid_y() + ph_nctaid_y() * ph_ctaid_z());
  const ph_global<int> mine = Y + block * 96 * 3;
  const int tid = ph_tid();
  mine[tid] = ph_ctaid_x() * 100 + ph_ctaid_y() * 10 + ph_ctaid_z();
  mine[96 + tid] = ph_nctaid_x() * 100 + ph_nctaid_y() * 10 + ph_nctaid_z();
  int sum = n;
  PH_UNROLL_N(4)
  for (int i = 0; i < 8; i++) sum += i * tid;
  PH_NO_UNROLL
  for (int i = 0; i < n; i++) sum -= i;
  mine[192 + tid] = PH_LIKELY(sum > 0) ? sum : 0;
}
// each p[i] op= v
PH_KERNEL(32, 1) u_update(ph_global<float> X) {
  const int tid = ph_tid();
  X[tid] += 3.f;
  X[tid] *= 2.f;
  X[tid] -= 1.f;
  X[tid] /= 4.f;
}
// thread t adds, maximises and minimises at place t & 3 of global and of shared memory; OLD: what its global addition found
template<class T> PH_DEVICE void atomics(ph_global<const T> V, ph_global<T> Y, ph_global<T> OLD) {
  const int tid = ph_tid(), at = tid & 3;
  const ph_shared<T> s = ph_smem<T>(0);
  if (tid < 12) {
    const T first = V[tid];
    s[tid] = first;
  }
  ph_syncthreads();
  const T v = V[tid];
  const T old = ph_atomic_add(Y, at, v);
  OLD[tid] = old;
  ph_atomic_max(Y, 4 + at, v);
  ph_atomic_min(Y, 8 + at, v);
  ph_atomic_add(s, at, v);
  ph_atomic_max(s, 4 + at, v);
  ph_atomic_min(s, 8 + at, v);
  ph_syncthreads();
  if (tid < 12) {
    const T r = s[tid];
    Y[16 + tid] = r;
  }
  // places 12 .. 15 hold V[0 .. 3]; four threads swap in V[4 + t], and four fail to
  if (tid < 4) {
    const T next = V[4 + tid];
    const T seen = ph_atomic_cas(Y, 12 + tid, v, next);
    OLD[64 + tid] = seen;
    const T again = ph_atomic_cas(Y, 12 + tid, v, v);
    OLD[68 + tid] = again;
  }
  ph_syncthreads();
}
PH_KERNEL(64, 1) u_atomics(ph_global<const float> A, ph_global<float> AY, ph_global<float> AO,
                           ph_global<const double> B, ph_global<double> BY, ph_global<double> BO,
                           ph_global<const int> C, ph_global<int> CY, ph_global<int> CO,
                           ph_global<const unsigned> D, ph_global<unsigned> DY, ph_global<unsigned> DO,
                           ph_global<const ph_i64> E, ph_global<ph_i64> EY, ph_global<ph_i64> EO,
                           ph_global<const ph_half> F, ph_global<ph_half> FY, ph_global<ph_half> FO,
                           ph_global<const ph_bf16> G, ph_global<ph_bf16> GY, ph_global<ph_bf16> GO) {
  atomics(A, AY, AO);
  atomics(B, BY, BO);
  atomics(C, CY, CO);
  atomics(D, DY, DO);
  atomics(E, EY, EO);
  atomics(F, FY, FO);
  atomics(G, GY, GO);
}
