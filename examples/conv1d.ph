// Depthwise convolution along the rows of [N, D], as in state-space models: every channel has its own R taps.
// Causal: Y[n, d] = sum over t of W[t, d] * X[n - (R - 1) + t, d]; positions before the start read zeros.
@autotune(BN in [16, 64], BD in [16, 64])
kernel conv1d(X: tensor<f32>[N, D], W: tensor<f32>[R, D], Y: tensor<f32>[N, D]) {
  let n = ctx.block.y * BN
  let d = ctx.block.x * BD
  var acc: tile<f32>[BN, BD] = 0.0
  for<unroll 4> t in range(R) {
    acc += W[t :+ 1, d :+ BD] * X[n - (R - 1) + t :+ BN, d :+ BD]
  }
  Y[n :+ BN, d :+ BD] = acc
}
