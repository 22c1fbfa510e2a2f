// Every construct of the language once.
const WIDTH = 12
const TABLE = WIDTH * 2 + 0x1_F

fn square(x) {
  return x * x
}

fn mix(a: f32, b: tile<f32>[R, C], const n: i32) -> tile<f32>[R, C] {
  if n == 0 { return b }
  return a * b
}

fn nothing() {}

@tensorcore
@tensorcore(tf32)
@launch(128, 2, MAX_REGS)

@autotune(BR in [4, 128], BC in [16, 32, 64], MODE in {auto, on}, MAX_REGS in [128])
@aligned(N = BR, M = BC,)
@options(precision = fast, stages = 3, order = MODE)
// A comment between attributes.
@grid((N + BR - 1) / BR, M, 1) @dynshared
kernel everything<T, U>(
    X: tensor<T>[N, M],
    Y: tensor<U>[N, M, 3, BR, 5],  // rank 5
    scale: f32, const causal: bool,
    const window: i32,
) {
  const HALF = BR / 2
  let pid = ctx.block.x; let rows = ctx.grid.y
  let view: tile<f32>[BR, BC] = X[pid * BR :+ BR, 0 : BC]
  var a: tile<f32>[BR, BC]
  var b: f32 = -1.0e30
  var c = 1
  a = X[:, : 4] else -inf
  a += X[idx, 2 :] else 0
  b -= .5 + 1. + 1e-5 + 1_000.000_1e+3 + inf - nan
  c *= 0xFF_00
  c /= -7 % 3
  Y[0, 1, 2, 3, 4 :+ n] = transpose(dot_t(a, b))[:, 0]
  Y[c][0] = (a)[1]
  @pipeline(2)
  for i in range(N) {
    continue
  }
  for<unroll 4> i in range(0, N) { break }
  for<unroll HALF> j in range(0, N, BC) {
    while i < j && !(a == b) || c >= 2 {
      i = i << 1 | i >> 2 & ~3 ^ 4
    };
  }
  if causal {
  } else if window != 3 {
    return
  } else if true {
    return b
  } else {
    print("x\t\"quoted\" \\ ", c, -c)
    assert(c > 0, "positive")
  }
  atomic_add(Y[0 :+ 4, 0], cast(
    a,
    b
  ))
  let long = a *
    b +
    c
  let tile = 3; let range = tile; var tensor = range; let unroll = false
  f()
}

kernel second() { return }
