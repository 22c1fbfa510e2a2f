// gemm_fp16 with its parts in functions that know neither dtypes nor tiles: the loads, the product, the end. One text for f16
// and bf16.
fn block_of(X, i, j, rows, cols) {
  return X[i :+ rows, j :+ cols]
}

fn plus_product(sum, a, b) {
  let product = dot(a, b)
  return sum + product
}

fn inner_products(A, B, i, j, rows, cols, depth, length) {
  var sum = zeros(f32, rows, cols)
  for k in range(0, length, depth) {
    sum = plus_product(sum, block_of(A, i, k, rows, depth), block_of(B, k, j, depth, cols))
  }
  return sum
}

fn finish(X, i, j, rows, cols, sum, alpha: f32, beta: f32) {
  var out = alpha * sum
  if beta != 0.0 {
    out += beta * block_of(X, i, j, rows, cols)
  }
  X[i :+ rows, j :+ cols] = out
}

@dynshared
@autotune(BM in [32, 256], BN in [32, 256], BK in [16, 128])
kernel gemm_fn<T>(A: tensor<T>[M, K], B: tensor<T>[K, N], C: tensor<T>[M, N], alpha: f32, beta: f32) {
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  finish(C, row, col, BM, BN, inner_products(A, B, row, col, BM, BN, BK, K), alpha, beta)
}
