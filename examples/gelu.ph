// Y = gelu(X), the exact form by erf, computed in f32 and rounded once at the store.
@autotune(BN in [256, 2048])
kernel gelu_forward<T>(X: tensor<T>[N], Y: tensor<T>[N]) {
  let i = ctx.block.x * BN
  Y[i :+ BN] = gelu(f32(X[i :+ BN]))
}
