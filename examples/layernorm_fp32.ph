// Layer normalisation over the last axis: Y = (X - mean) / sqrt(var + eps) * gamma + beta, any M and N.
// The variance is the mean of squared deviations, as in the two-pass formula. Where a tile covers the row
// (BN >= N) the row is read once; longer rows are read three times.
@autotune(BR in {1, 2, 4, 8}, BN in [64, 16384])
kernel layernorm(X: tensor<f32>[M, N], gamma: tensor<f32>[N], beta: tensor<f32>[N], Y: tensor<f32>[M, N], eps: f32) {
  let row = ctx.block.x * BR
  if N <= BN {
    let x: tile<f32>[BR, BN] = X[row :+ BR, 0 :+ BN]
    let mean = rowsum(x) / N  // zeros past the end do not change a sum
    let d = where(iota(1) < N, x - mean, 0.0)
    let rstd = 1.0 / sqrt(rowsum(d * d) / N + eps)
    Y[row :+ BR, 0 :+ BN] = d * rstd * gamma[0 :+ BN] + beta[0 :+ BN]
  } else {
    var total: tile<f32>[BR, 1] = 0.0
    for c in range(0, N, BN) {
      total += rowsum(X[row :+ BR, c :+ BN])
    }
    let mean = total / N
    var squares: tile<f32>[BR, 1] = 0.0
    for c in range(0, N, BN) {
      let d = where(iota(1) < N - c, X[row :+ BR, c :+ BN] - mean, 0.0)
      squares += rowsum(d * d)
    }
    let rstd = 1.0 / sqrt(squares / N + eps)
    for c in range(0, N, BN) {
      Y[row :+ BR, c :+ BN] = (X[row :+ BR, c :+ BN] - mean) * rstd * gamma[c :+ BN] + beta[c :+ BN]
    }
  }
}
