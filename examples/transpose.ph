// Y = X^T for any M and N and any element type.
@autotune(BM in [16, 64], BN in [16, 64])
kernel transpose_matrix<T>(X: tensor<T>[M, N], Y: tensor<T>[N, M]) {
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  Y[col :+ BN, row :+ BM] = transpose(X[row :+ BM, col :+ BN])
}
