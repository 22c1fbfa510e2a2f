// The largest value of each row and its first position. The inputs hold no NaN.
@autotune(BR in {1, 2, 4, 8}, BN in [64, 1024])
kernel argmax_rows(X: tensor<f32>[M, N], V: tensor<f32>[M], I: tensor<i32>[M]) {
  let row = ctx.block.x * BR
  var best: tile<f32>[BR, 1] = -inf
  var at: tile<i32>[BR, 1] = 0
  for c in range(0, N, BN) {
    let x: tile<f32>[BR, BN] = X[row :+ BR, c :+ BN] else -inf
    let m = rowmax(x)
    at = where(m > best, rowargmax(x) + c, at)  // strictly larger: an earlier block keeps a tie
    best = tmax(best, m)
  }
  V[row :+ BR] = best
  I[row :+ BR] = at
}
