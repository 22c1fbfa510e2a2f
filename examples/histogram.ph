// H[b] += the number of elements of X that equal b. Values outside 0 <= b < B are not counted.
@autotune(BN in [128, 1024])
kernel histogram(X: tensor<i32>[N], H: tensor<i32>[B]) {
  let i = ctx.block.x * BN
  let bins: tile<i32>[BN] = X[i :+ BN] else -1  // past the end: a bin that does not exist, so nothing is counted
  atomic_add(H[bins], 1)
}
