// Rotary position embedding of [N, H, D]: the halves (a, b) of each head turn by the angle of their position.
// C and S hold the cosines and sines, [N, D / 2]. One text for f16, bf16 and f32; the arithmetic is f32.
@autotune(D in {32, 64, 128}, BN in [8, 64])
kernel rope<T>(X: tensor<T>[N, H, D], C: tensor<f32>[N, D / 2], S: tensor<f32>[N, D / 2], Y: tensor<T>[N, H, D]) {
  const HALF = D / 2
  let n = ctx.block.x * BN
  let h = ctx.block.y
  let a = f32(X[n :+ BN, h, 0 :+ HALF])
  let b = f32(X[n :+ BN, h, HALF :+ HALF])
  let c: tile<f32>[BN, HALF] = C[n :+ BN, :]
  let s: tile<f32>[BN, HALF] = S[n :+ BN, :]
  Y[n :+ BN, h, :] = cat(a * c - b * s, b * c + a * s, 1)
}
