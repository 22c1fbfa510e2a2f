// One explicit step of the heat equation on a grid whose surroundings are held at zero:
// Y = X + r * (left + right + above + below - 4 X). The neighbours are slices that start one element away; what
// they read outside the grid, negative positions included, is zero.
@autotune(BH in [4, 32], BW in [16, 64])
kernel heat_step(X: tensor<f32>[H, W], Y: tensor<f32>[H, W], r: f32) {
  let i = ctx.block.y * BH
  let j = ctx.block.x * BW
  let x: tile<f32>[BH, BW] = X[i :+ BH, j :+ BW]
  let sides = X[i :+ BH, j - 1 :+ BW] + X[i :+ BH, j + 1 :+ BW]
  let above_below = X[i - 1 :+ BH, j :+ BW] + X[i + 1 :+ BH, j :+ BW]
  Y[i :+ BH, j :+ BW] = x + r * (sides + above_below - 4.0 * x)
}
