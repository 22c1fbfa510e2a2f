// part: rounding
// needs: core
// provides: ph_f2i ph_f2u ph_f2ll ph_d2i ph_d2u ph_d2ll ph_d2f_rz ph_ll2f_rz
// Float to integer truncates and saturates, NaN gives 0. The instructions saturate; they give 0 for NaN only from f32
// to 32 bits.
PH_I int ph_f2i(float v) { return __float2int_rz(v); }
PH_I unsigned ph_f2u(float v) { return __float2uint_rz(v); }
PH_I ph_i64 ph_f2ll(float v) { return v != v ? 0 : __float2ll_rz(v); }
PH_I int ph_d2i(double v) { return v != v ? 0 : __double2int_rz(v); }
PH_I unsigned ph_d2u(double v) { return v != v ? 0 : __double2uint_rz(v); }
PH_I ph_i64 ph_d2ll(double v) { return v != v ? 0 : __double2ll_rz(v); }
PH_I float ph_d2f_rz(double v) { return __double2float_rz(v); }
PH_I float ph_ll2f_rz(ph_i64 v) { return __ll2float_rz(v); }
