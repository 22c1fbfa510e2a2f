// Attention with its statements split and merged: the scale inside the exponentials, so that the running maximum is one of plain
// products; loads bound by `let`; one multiplication by the reciprocal of l at the end; one mask for both kinds of attention.
@autotune(D in {32, 48, 64, 80, 96, 128}, BR in [16, 128], BC in [16, 128])
@dynshared
@grid(ceildiv(M, BR), H, B)
kernel attention_split<T>(Q: tensor<T>[B, H, M, D],
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

  var acc: tile<f32>[BR, D] = 0.0
  var m: tile<f32>[BR, 1] = -inf
  var l: tile<f32>[BR, 1] = 0.0

  var last = N
  if causal {
    last = min(N, row + BR + N - M)
  }
  let blocks = ceildiv(last, BC)
  for number in range(blocks) {
    let kt = number * BC
    let keys = K[b, hk, kt :+ BC, :]
    let values = V[b, hk, kt :+ BC, :]
    let products = dot_t(q, keys)
    var s: tile<f32>[BR, BC] = 0.0
    if causal {
      s = where(kt + iota(1) > row + iota(0) + N - M, -inf, products)
    } else {
      s = where(!(kt + iota(1) < N), -inf, products)
    }
    let top = rowmax(s)
    let mnew = tmax(m, top)
    let safe = where(mnew > -inf, mnew, 0.0)
    let corr = exp((m - safe) * scale)
    let p = exp((s - safe) * scale)
    l *= corr
    l += rowsum(p)
    acc *= corr
    let rounded = T(p)
    let weighted = dot(rounded, values)
    acc += weighted
    m = mnew
  }
  let inverse = 1.0 / where(l == 0.0, 1.0, l)
  O[b, h, row :+ BR, :] = acc * inverse
}
