// Attention with every name changed, parameters and declarations in another order, and comparisons the other way round.
const NOTHING = 0.0
const NEVER = -inf

@grid(ceildiv(Queries, ROWS), Heads, Batch)
@autotune(COLS in [16, 128], ROWS in [16, 128], WIDTH in {32, 48, 64, 80, 96, 128})
@dynshared
kernel look_up<E>(const only_past: bool,
                  sharpness: f32,
                  answer: tensor<E>[Batch, Heads, Queries, WIDTH],
                  content: tensor<E>[Batch, Sources, Keys, WIDTH],
                  address: tensor<E>[Batch, Sources, Keys, WIDTH],
                  question: tensor<E>[Batch, Heads, Queries, WIDTH]) {
  let which = ctx.block.z
  let head = ctx.block.y
  let top = ctx.block.x * ROWS
  let source = head / (Heads / Sources)
  let asked = question[which, head, top :+ ROWS, :]

  var weight: tile<f32>[ROWS, 1] = NOTHING
  var peak: tile<f32>[ROWS, 1] = NEVER
  var found: tile<f32>[ROWS, WIDTH] = NOTHING

  var stop = Keys
  if only_past {
    stop = min(top + ROWS + Keys - Queries, Keys)
  }
  for at in range(0, stop, COLS) {
    var likeness = sharpness * dot_t(asked, address[which, source, at :+ COLS, :])
    if only_past {
      likeness = where(top + iota(0) + Keys - Queries >= at + iota(1), likeness, NEVER)
    } else {
      likeness = where(Keys - at > iota(1), likeness, NEVER)
    }
    let higher = tmax(rowmax(likeness), peak)
    let base = where(higher == NEVER, NOTHING, higher)
    let share = exp(likeness - base)
    let fade = exp(peak - base)
    weight = rowsum(share) + fade * weight
    found = dot(E(share), content[which, source, at :+ COLS, :]) + fade * found
    peak = higher
  }
  answer[which, head, top :+ ROWS, :] = found / where(weight == NOTHING, 1.0, weight)
}
