// Embedding rows by token: a gather forward, a scatter with atomics backward. Tokens outside the table read zeros.
@autotune(BN in [8, 64], BD in [16, 128])
kernel embedding<T>(ids: tensor<i32>[N], table: tensor<T>[V, D], out: tensor<T>[N, D]) {
  let n = ctx.block.y * BN
  let d = ctx.block.x * BD
  let rows: tile<i32>[BN] = ids[n :+ BN]
  out[n :+ BN, d :+ BD] = table[rows, d :+ BD]
}

// d_table[ids[n]] += d_out[n]. Tokens repeat, so the sums are atomic and their order is not fixed.
@autotune(BN in [8, 64], BD in [16, 128])
kernel embedding_grad(ids: tensor<i32>[N], d_out: tensor<f32>[N, D], d_table: tensor<f32>[V, D]) {
  let n = ctx.block.y * BN
  let d = ctx.block.x * BD
  let rows: tile<i32>[BN] = ids[n :+ BN]  // past the end: token 0 with a gradient of 0, which adds nothing
  atomic_add(d_table[rows, d :+ BD], d_out[n :+ BN, d :+ BD])
}
