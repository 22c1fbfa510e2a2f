// FlashAttention-2 for one head on f16 with an f32 softmax, any numbers of queries and keys.
@dynshared
@autotune(D in {32, 48, 64, 80, 96, 128}, BR in [16, 128], BC in [16, 128])
kernel flash_attention_fp16(Q: tensor<f16>[Nq, D],
                            K: tensor<f16>[Nk, D],
                            V: tensor<f16>[Nk, D],
                            O: tensor<f16>[Nq, D],
                            scale: f32) {
  let row = ctx.block.x * BR
  let q = Q[row :+ BR, :]

  var acc: tile<f32>[BR, D] = 0.0  // unnormalised sum of p * v
  var m: tile<f32>[BR, 1] = -inf   // running row maximum
  var l: tile<f32>[BR, 1] = 0.0    // running sum of p

  for kt in range(0, Nk, BC) {
    let k = K[kt :+ BC, :]
    let v = V[kt :+ BC, :]

    var s = dot_t(q, k) * scale
    s = where(iota(1) < Nk - kt, s, -inf)  // a ragged last block reads zeros past Nk

    let mnew = tmax(m, rowmax(s))
    let p = exp(s - mnew)  // the first block has a key, so mnew is finite
    let corr = exp(m - mnew)
    l = l * corr + rowsum(p)
    acc = acc * corr + dot(f16(p), v)
    m = mnew
  }
  O[row :+ BR, :] = acc / l
}
