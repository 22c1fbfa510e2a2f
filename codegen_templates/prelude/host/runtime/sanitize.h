// Handlers of -fsanitize=bounds,shift,signed-integer-overflow,integer-divide-by-zero without libubsan: register arrays,
// index arithmetic.
#pragma once
struct UbLocation {
  const char* file;
  u32 line, column;
};
struct UbType {
  uint16_t kind, info;  // info: bit 0 signed, the rest log2 of the width
  char name[1];
};
struct UbData {
  UbLocation at;
  UbType* type;
};
static long long ub_value(const UbType* type, u64 v) {
  const int bits = 1 << (type->info >> 1);
  if (bits >= 64) return (long long)v;
  return type->info & 1 ? (long long)(v << (64 - bits)) >> (64 - bits) : (long long)(v & ((1ull << bits) - 1));
}
static void ub_report(UbData* d, const char* op, u64 a, u64 b) {
  report("integer-overflow", d->at.line, 0, "%lld %s %lld does not fit %s", ub_value(d->type, a), op,
         ub_value(d->type, b), d->type->name);
}
extern "C" {
void __ubsan_handle_out_of_bounds(UbLocation* at, u64 i) {
  report("register-index", at->line, 0, "index %lld is outside a local array", (long long)(int)i);
}
void __ubsan_handle_add_overflow(UbData* d, u64 a, u64 b) { ub_report(d, "+", a, b); }
void __ubsan_handle_sub_overflow(UbData* d, u64 a, u64 b) { ub_report(d, "-", a, b); }
void __ubsan_handle_mul_overflow(UbData* d, u64 a, u64 b) { ub_report(d, "*", a, b); }
void __ubsan_handle_negate_overflow(UbData* d, u64 a) { ub_report(d, "negated, from", a, 0); }
void __ubsan_handle_divrem_overflow(UbData* d, u64 a, u64 b) {
  if (b) ub_report(d, "/", a, b);
  else report("division-by-zero", d->at.line, 0, "%lld divided by zero", ub_value(d->type, a));
}
void __ubsan_handle_shift_out_of_bounds(UbData* d, u64 a, u64 b) {
  report("shift", d->at.line, 0, "shift of %lld by %lld", ub_value(d->type, a), (long long)(int)b);
}
void ph_rt_fault(const char* kind, const char* text, int line) { report(kind, line, 0, "%s", text); }
}
