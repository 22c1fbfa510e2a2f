// Gated linear attention by chunks of C, one head, in IEEE f32. G [N, 1] holds the logarithms of the gates, log a_t <= 0:
//   S_t = a_t S_(t-1) + k_t^T v_t        the state, [D, D]
//   o_t = scale q_t S_t
// Within a chunk that starts from S, with g_t = log a_1 + ... + log a_t counted from the chunk's start:
//   o_t = scale (exp(g_t) q_t S + sum over j <= t of exp(g_t - g_j) (q_t k_j) v_j)
//   S'  = exp(g_C) S + sum over j of exp(g_C - g_j) k_j^T v_j
// Only differences of g that are <= 0 are exponentiated, so nothing overflows, however strong the gates are.
// One block walks through the sequence and carries the state in a tile. Past N keys and gates read as 0: a = 1, k = 0.
@dynshared
@autotune(D in {16, 32, 64, 128}, C in [16, 128])
kernel kda(Q: tensor<f32>[N, D],
           K: tensor<f32>[N, D],
           V: tensor<f32>[N, D],
           G: tensor<f32>[N, 1],
           O: tensor<f32>[N, D],
           scale: f32) {
  var state: tile<f32>[D, D] = 0.0
  for t in range(0, N, C) {
    let q = Q[t :+ C, :]
    let k = K[t :+ C, :]
    let v = V[t :+ C, :]
    let gate = G[t :+ C, :]
    let g = cumsum(gate)
    let whole = colsum(gate)  // [1, 1]: the whole chunk's

    let decay = exp(tril(g - transpose(g)))  // above the diagonal exp(0), not exp of something large
    let scores = tril(dot_t(q, k) * decay)
    O[t :+ C, :] = scale * (dot(scores, v) + exp(g) * dot(q, state))
    state = exp(whole) * state + dot(transpose(k * exp(whole - g)), v)
  }
}
