// Y = a * X + Y on vectors of any length.
@autotune(BN in [256, 4096])
kernel saxpy(X: tensor<f32>[N], Y: tensor<f32>[N], a: f32) {
  let i = ctx.block.x * BN
  Y[i :+ BN] = a * X[i :+ BN] + Y[i :+ BN]
}
