// out[0] += the sum of x * x. A fixed number of CTAs walks the vector in strides; each adds its part once, in an
// order that is not fixed.
fn square(x) {
  return x * x
}

@autotune(BN in [128, 1024])
@grid(min(64, ceildiv(N, BN)))
kernel sum_squares(X: tensor<f32>[N], out: tensor<f32>[1]) {
  var acc: tile<f32>[BN] = 0.0
  for i in range(ctx.block.x * BN, N, ctx.grid.x * BN) {
    acc += square(X[i :+ BN])
  }
  atomic_add(out[0], sum(acc))
}
