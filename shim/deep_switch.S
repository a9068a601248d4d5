/* gc_deep_switch(run, argument, top): calls run(argument) on the stack that ends at `top`, and returns on the
 * caller's. The frame pointer stays on the caller's stack, so that debuggers and unwinders can follow it. */
#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

#if defined(__x86_64__)

    .text
    .globl gc_deep_switch
    .hidden gc_deep_switch
    .type gc_deep_switch, @function
    .p2align 4
gc_deep_switch:
    .cfi_startproc
    _CET_ENDBR
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    movq %rdi, %rax
    movq %rsi, %rdi
    movq %rdx, %rsp
    call *%rax
    leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size gc_deep_switch, . - gc_deep_switch

#elif defined(__aarch64__)

    .text
    .globl gc_deep_switch
    .hidden gc_deep_switch
    .type gc_deep_switch, %function
    .p2align 4
gc_deep_switch:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    .cfi_def_cfa_register x29
    mov x3, x0
    mov x0, x1
    mov sp, x2
    blr x3
    mov sp, x29
    .cfi_def_cfa_register sp
    ldp x29, x30, [sp], #16
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    .size gc_deep_switch, . - gc_deep_switch

#endif

    .section .note.GNU-stack, "", %progbits
