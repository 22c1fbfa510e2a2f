// For each query q the number of elements of the ascending table that are smaller, by binary search. All queries of
// a tile halve their ranges together, until every range is empty.
@autotune(BN in [64, 512])
kernel searchsorted(table: tensor<f32>[L], queries: tensor<f32>[N], positions: tensor<i32>[N]) {
  let i = ctx.block.x * BN
  let q: tile<f32>[BN] = queries[i :+ BN]
  var lo: tile<u32>[BN] = 0
  var hi: tile<u32>[BN] = u32(L)
  while max(hi - lo) > 0 {
    let mid = (lo + hi) / 2
    let go_right = lo < hi && table[mid] < q
    hi = where(go_right, hi, tmin(hi, mid))
    lo = where(go_right, mid + 1, lo)
  }
  positions[i :+ BN] = i32(lo)
}
