// Attention with its parts in functions: the scores of a block of keys, the row statistics, and the end. The scale is applied to
// the queries, once, in front of the loop.
fn scores(q, keys, kt, row, rows, columns, shift, const causal: bool) {
  let s = dot_t(q, keys)
  if causal {
    return where(kt + iota(1, columns) <= row + iota(0, rows) + shift, s, -inf)
  }
  return s
}

fn larger_row_maximum(m, s) {
  return tmax(m, rowmax(s))
}

fn exponents(s, m) {
  let reference = where(m == -inf, 0.0, m)
  return exp(s - reference)
}

fn running_sum(l, corr, p) {
  return l * corr + rowsum(p)
}

fn normalised(acc, l) {
  return acc / where(l == 0.0, 1.0, l)
}

@autotune(D in {32, 48, 64, 80, 96, 128}, BR in [16, 128], BC in [16, 128])
@dynshared
@grid(ceildiv(M, BR), H, B)
kernel attention_fn<T>(Q: tensor<T>[B, H, M, D],
                       K: tensor<T>[B, HK, N, D],
                       V: tensor<T>[B, HK, N, D],
                       O: tensor<T>[B, H, M, D],
                       scale: f32,
                       const causal: bool) {
  let row = ctx.block.x * BR
  let h = ctx.block.y
  let b = ctx.block.z
  let hk = h / (H / HK)
  let q = T(scale * f32(Q[b, h, row :+ BR, :]))

  var acc: tile<f32>[BR, D] = 0.0
  var m: tile<f32>[BR, 1] = -inf
  var l: tile<f32>[BR, 1] = 0.0

  var last = N
  if causal {
    last = min(N, row + BR + N - M)
  }
  for kt in range(0, last, BC) {
    var s = scores(q, K[b, hk, kt :+ BC, :], kt, row, BR, BC, N - M, causal)
    if !causal {
      s = where(iota(1) < N - kt, s, -inf)
    }
    let mnew = larger_row_maximum(m, s)
    let p = exponents(s, mnew)
    let corr = exponents(m, mnew)
    l = running_sum(l, corr, p)
    acc = acc * corr + dot(T(p), V[b, hk, kt :+ BC, :])
    m = mnew
  }
  O[b, h, row :+ BR, :] = normalised(acc, l)
}
