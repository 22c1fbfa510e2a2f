// Every kind of statement once; its tile IR is a golden.
const EPS = 1.0e-5

fn relu(x) {
  return tmax(x, 0.0)
}

fn pick(x: f32, y: f32) -> f32 {
  if x > y {
    return x
  }
  let z = y * 2.0
  return z
}

fn plus(a, b) {
  return a + b
}

@launch(TH, 2)
@autotune(BM in [16, 64], BN in {16, 32}, TH in {128, 256}, MM in {fma, mma})
@aligned(M = BM)
@tensorcore(tf32)
@options(matmul = MM, stages = 2)
@dynshared
kernel tour<T>(X: tensor<T>[M, N], Y: tensor<T>[M, N], I: tensor<i32>[M], L: tensor<f32>[M], Z: tensor<f32>[N],
               const causal: bool, n: i32, a: f32) {
  let r = ctx.block.x * BM
  let bias = Z[0 :+ BN]
  var acc: tile<f32>[BM, BN] = 0.0
  var best: tile<f32>[BM, 1]
  best = -inf
  @pipeline(2)
  for<unroll 2> j in range(0, N, BN) {
    var x: tile<f32>[BM, BN] = X[r :+ BM, j :+ BN] else -inf
    if causal {
      x = where(iota(0) + r >= iota(1) + j, x, -1.0e30)
    }
    best = tmax(best, rowmax(x))
    acc += relu(x) + bias
    if j > n {
      break
    }
    if j == 3 {
      continue
    } else {
      acc = acc * 2.0
    }
  }
  acc[0 :+ 4, :] += 1.0
  let idx: tile<i32>[BM] = I[r :+ BM]
  Y[idx, 0 :+ BN] = acc
  acc += dot(dot_t(acc, acc), f32(X[idx, 0 :+ BN]))
  L[r :+ BM] = rowsum(acc) + EPS
  var steps = 0
  while steps < 10 && a > 0.0 {
    steps += 1
    if a > 2.0 {
      return
    }
  }
  let red = reduce(tril(acc), 1, plus, 0.0)
  print("after", steps, red)
  atomic_add(L[r :+ BM], red)
  let old = atomic_add(L[0], pick(a, 3.0))
  assert(old > 0.0, "positive")
  Y[r :+ BM, 0 :+ BN] = cat(acc[:, 0 : BN / 2], cumsum(transpose(reshape(acc, BN, BM)))[:, BN / 2 :], 1) + best
}
