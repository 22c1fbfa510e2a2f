// Attention for one head with any numbers of queries and keys, in IEEE f32: O = softmax(Q @ K^T * scale) @ V.
// With causal = true, query i sees the keys j <= i + Nk - Nq: the last query sees every key, as with a cache of keys.
// A query that sees no key at all gives zeros.
@autotune(D in {16, 32, 64, 128}, BR in [16, 128], BC in [16, 128])
kernel masked_attention(Q: tensor<f32>[Nq, D],
                        K: tensor<f32>[Nk, D],
                        V: tensor<f32>[Nk, D],
                        O: tensor<f32>[Nq, D],
                        scale: f32,
                        const causal: bool) {
  let row = ctx.block.x * BR
  let q = Q[row :+ BR, :]

  var acc: tile<f32>[BR, D] = 0.0  // unnormalised sum of p * v
  var m: tile<f32>[BR, 1] = -inf   // running row maximum
  var l: tile<f32>[BR, 1] = 0.0    // running sum of p

  var last = Nk  // keys from here on are seen by no row of this block
  if causal {
    last = min(Nk, row + BR + Nk - Nq)
  }
  for kt in range(0, last, BC) {
    var s: tile<f32>[BR, BC] = dot_t(q, K[kt :+ BC, :]) * scale
    s = where(iota(1) < Nk - kt, s, -inf)  // a ragged last block reads zeros past Nk
    if causal {
      s = where(kt + iota(1) <= row + iota(0) + Nk - Nq, s, -inf)
    }

    let mnew = tmax(m, rowmax(s))
    let safe = where(mnew == -inf, 0.0, mnew)  // no key seen so far: avoid -inf - -inf
    let p = exp(s - safe)
    let corr = exp(m - safe)
    l = l * corr + rowsum(p)
    acc = acc * corr + dot(p, V[kt :+ BC, :])
    m = mnew
  }
  O[row :+ BR, :] = acc / where(l == 0.0, 1.0, l)
}
