// Row softmax of an [M, N] matrix, any M and N; each CTA takes BR rows.
// Where a tile covers the row (BN >= N) the row is read once and written once. Longer rows take the online form,
// which reads them twice.
@autotune(BR in {1, 2, 4, 8}, BN in [64, 16384])
kernel softmax(X: tensor<f32>[M, N], Y: tensor<f32>[M, N]) {
  let row = ctx.block.x * BR
  if N <= BN {
    let x: tile<f32>[BR, BN] = X[row :+ BR, 0 :+ BN] else -inf
    let e = exp(x - rowmax(x))
    Y[row :+ BR, 0 :+ BN] = e / rowsum(e)
  } else {
    var m: tile<f32>[BR, 1] = -inf  // running row maximum
    var l: tile<f32>[BR, 1] = 0.0   // running sum of exp(x - m)
    for c in range(0, N, BN) {
      let x: tile<f32>[BR, BN] = X[row :+ BR, c :+ BN] else -inf
      let mnew = tmax(m, rowmax(x))
      let safe = where(mnew == -inf, 0.0, mnew)  // a row that is all -inf so far: avoid -inf - -inf
      l = l * exp(m - safe) + rowsum(exp(x - safe))
      m = mnew
    }
    for c in range(0, N, BN) {
      Y[row :+ BR, c :+ BN] = exp(X[row :+ BR, c :+ BN] - m) / l
    }
  }
}
