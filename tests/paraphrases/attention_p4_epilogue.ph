// Attention whose output is multiplied by a gate for each head, clamped and rounded explicitly.
@autotune(D in {32, 48, 64, 80, 96, 128}, BR in [16, 128], BC in [16, 128])
@dynshared
@grid(ceildiv(M, BR), H, B)
kernel attention_epilogue<T>(Q: tensor<T>[B, H, M, D],
                             K: tensor<T>[B, HK, N, D],
                             V: tensor<T>[B, HK, N, D],
                             O: tensor<T>[B, H, M, D],
                             gate: tensor<f32>[H],
                             scale: f32,
                             const causal: bool) {
  let row = ctx.block.x * BR
  let h = ctx.block.y
  let b = ctx.block.z
  let hk = h / (H / HK)
  let q = Q[b, h, row :+ BR, :]
  let g = sigmoid(gate[h])

  var acc: tile<f32>[BR, D] = 0.0
  var m: tile<f32>[BR, 1] = -inf
  var l: tile<f32>[BR, 1] = 0.0

  var last = N
  if causal {
    last = min(N, row + BR + N - M)
  }
  for kt in range(0, last, BC) {
    var s = dot_t(q, K[b, hk, kt :+ BC, :]) * scale
    if causal {
      s = where(kt + iota(1) <= row + iota(0) + N - M, s, -inf)
    } else {
      s = where(iota(1) < N - kt, s, -inf)
    }
    let mnew = tmax(m, rowmax(s))
    let safe = where(mnew == -inf, 0.0, mnew)
    let p = exp(s - safe)
    let corr = exp(m - safe)
    l = l * corr + rowsum(p)
    acc = acc * corr + dot(T(p), V[b, hk, kt :+ BC, :])
    m = mnew
  }
  let out = acc * (g / where(l == 0.0, 1.0, l))
  O[b, h, row :+ BR, :] = T(clamp(out, -1000.0, 1000.0))
}
