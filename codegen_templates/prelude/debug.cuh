// part: debug
// needs: core
// provides: ph_printf ph_assert_fail
#define ph_printf(...) printf(__VA_ARGS__)
PH_I void ph_assert_fail(const char* text, int line) {
  printf("line %d: assertion failed: %s (block %d %d %d, thread %d)\n", line, text,
    ph_ctaid_x(), ph_ctaid_y(), ph_ctaid_z(), ph_tid());
  asm volatile("trap;");
}
