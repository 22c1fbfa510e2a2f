// The product of gemm_fp16 under other names for everything that has one; dims, tiles and parameters come in another order.
@autotune(TILE_INNER in [16, 128], TILE_COLS in [32, 256], TILE_ROWS in [32, 256])
@dynshared
kernel affine_update(shrink: f32, out: tensor<f16>[Rows, Cols], right: tensor<f16>[Inner, Cols], left: tensor<f16>[Rows, Inner], grow: f32) {
  let first_col = TILE_COLS * ctx.block.x
  let first_row = TILE_ROWS * ctx.block.y
  var total: tile<f32>[TILE_ROWS, TILE_COLS] = 0.0
  for at in range(0, Inner, TILE_INNER) {
    // a block of columns of `left` meets a block of rows of `right`
    total += dot(left[first_row :+ TILE_ROWS, at :+ TILE_INNER], right[at :+ TILE_INNER, first_col :+ TILE_COLS])
  }
  total = total * grow
  if 0.0 != shrink {
    total += out[first_row :+ TILE_ROWS, first_col :+ TILE_COLS] * shrink
  }
  out[first_row :+ TILE_ROWS, first_col :+ TILE_COLS] = total
}
