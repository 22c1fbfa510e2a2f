// Y[p[i]] = X[i]: rows go where an index tile says (a scatter). No two rows may go to one place; a row whose place lies
// outside of Y goes nowhere, and what no row goes to stays as it is.
@autotune(BN in [8, 64], BD in [16, 128])
kernel permute_rows(X: tensor<f32>[N, D], p: tensor<i32>[N], Y: tensor<f32>[N, D]) {
  let n = ctx.block.y * BN
  let d = ctx.block.x * BD
  let to: tile<i32>[BN] = p[n :+ BN] else -1  // past the end: nowhere
  Y[to, d :+ BD] = X[n :+ BN, d :+ BD]
}
