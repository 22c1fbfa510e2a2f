// Attention for many heads, any numbers of queries and keys: O = softmax(Q @ K^T * scale) @ V for each head.
// H query heads share HK heads of keys and values (H a multiple of HK): H = HK is multi-head, HK = 1 multi-query attention.
// With causal = true, query i sees the keys j <= i + N - M: the last query sees every key, as with a cache of keys.
// A query that sees no key at all gives zeros.
@autotune(D in {32, 48, 64, 80, 96, 128}, BR in [16, 128], BC in [16, 128])
@dynshared
@grid(ceildiv(M, BR), H, B)
kernel attention<T>(Q: tensor<T>[B, H, M, D],
                    K: tensor<T>[B, HK, N, D],
                    V: tensor<T>[B, HK, N, D],
                    O: tensor<T>[B, H, M, D],
                    scale: f32,
                    const causal: bool) {
  let row = ctx.block.x * BR
  let h = ctx.block.y
  let b = ctx.block.z
  let hk = h / (H / HK)
  let q = Q[b, h, row :+ BR, :]

  var acc: tile<f32>[BR, D] = 0.0  // unnormalised sum of p * v
  var m: tile<f32>[BR, 1] = -inf   // running row maximum
  var l: tile<f32>[BR, 1] = 0.0    // running sum of p

  var last = N  // keys from here on are seen by no row of this block
  if causal {
    last = min(N, row + BR + N - M)
  }
  for kt in range(0, last, BC) {
    var s = dot_t(q, K[b, hk, kt :+ BC, :]) * scale
    if causal {
      s = where(kt + iota(1) <= row + iota(0) + N - M, s, -inf)  // hides what lies past N, too
    } else {
      s = where(iota(1) < N - kt, s, -inf)  // a ragged last block reads zeros past N
    }

    let mnew = tmax(m, rowmax(s))
    let safe = where(mnew == -inf, 0.0, mnew)  // no key seen so far: avoid -inf - -inf
    let p = exp(s - safe)
    let corr = exp(m - safe)
    l = l * corr + rowsum(p)
    acc = acc * corr + dot(T(p), V[b, hk, kt :+ BC, :])
    m = mnew
  }
  O[b, h, row :+ BR, :] = acc / where(l == 0.0, 1.0, l)
}
