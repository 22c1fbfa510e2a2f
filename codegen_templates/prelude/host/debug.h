#define ph_printf(...) ph_rt_printf(__VA_ARGS__)
PH_I void ph_assert_fail(const char* text, int line) { ph_rt_assert_fail(text, line); }
