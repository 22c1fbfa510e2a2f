// Symmetric quantisation of rows to signed bytes: scale[i] = max |X[i]| / 127, Q = round(X / scale).
// The row maximum is a user-defined reduction; a row of zeros gets scale 1.
fn larger_magnitude(a, b) {
  return tmax(abs(a), abs(b))
}

@autotune(BR in {1, 4, 8}, BN in [64, 1024])
kernel quantize_rows(X: tensor<f32>[M, N], Q: tensor<i8>[M, N], scale: tensor<f32>[M]) {
  let row = ctx.block.x * BR
  var top: tile<f32>[BR, 1] = 0.0
  for c in range(0, N, BN) {
    let x: tile<f32>[BR, BN] = X[row :+ BR, c :+ BN]
    top = larger_magnitude(top, reduce(x, 1, larger_magnitude, 0.0))
  }
  let s = where(top == 0.0, 1.0, top / 127.0)
  scale[row :+ BR] = s
  for c in range(0, N, BN) {
    Q[row :+ BR, c :+ BN] = i8(clamp(round(X[row :+ BR, c :+ BN] / s), -127.0, 127.0))
  }
}
