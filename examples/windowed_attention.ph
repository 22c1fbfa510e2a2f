// Attention through a sliding window, for several heads: query i sees the `window` keys that end at its own position,
// i + N - M - window < j <= i + N - M (the last query ends at the last key). The loop visits only the blocks of keys
// that some row of this block sees. A query that sees no key at all gives zeros.
@dynshared
@autotune(D in {32, 48, 64, 80, 96, 128}, BR in [16, 128], BC in [16, 128])
kernel windowed_attention<T>(Q: tensor<T>[H, M, D],
                             K: tensor<T>[H, N, D],
                             V: tensor<T>[H, N, D],
                             O: tensor<T>[H, M, D],
                             scale: f32,
                             const window: i32) {
  let row = ctx.block.x * BR
  let h = ctx.block.y
  let q = Q[h, row :+ BR, :]

  var acc: tile<f32>[BR, D] = 0.0  // unnormalised sum of p * v
  var m: tile<f32>[BR, 1] = -inf   // running row maximum
  var l: tile<f32>[BR, 1] = 0.0    // running sum of p

  let first = max(0, row + N - M - window + 1)  // the first key that the first row sees
  let last = min(N, row + BR + N - M)           // the last row sees none from here on
  for kt in range(first / BC * BC, last, BC) {
    var s = dot_t(q, K[h, kt :+ BC, :]) * scale
    s = where(kt + iota(1) <= row + iota(0) + N - M, s, -inf)  // hides what lies past N, too
    s = where(kt + iota(1) > row + iota(0) + N - M - window, s, -inf)

    let mnew = tmax(m, rowmax(s))
    let safe = where(mnew == -inf, 0.0, mnew)  // no key seen so far: avoid -inf - -inf
    let p = exp(s - safe)
    let corr = exp(m - safe)
    l = l * corr + rowsum(p)
    acc = acc * corr + dot(T(p), V[h, kt :+ BC, :])
    m = mnew
  }
  O[h, row :+ BR, :] = acc / where(l == 0.0, 1.0, l)
}
