/* The exported names of the wrapped rows: what programs link and what look-ups return. Each is a jump to
 * gc_entry_targets[row]; entry.c decides the target at the name's first call. Arguments, stack and return address are
 * the caller's.
 *
 * Tools that patch functions (UCX's memory hooks) move the first instructions elsewhere: at most 16 bytes, and only
 * instructions that they know. So each name begins with some that all of them know and that do no harm when they run
 * twice: moves of the row's number, which gc_entry_bind reads, to a register of no call's. No landing pad (endbr64,
 * bti) stands before them. */

#define API(symbol, ...) wrapped symbol
#define USE(symbol, ...) unwrapped
#define RUNTIME(symbol, ...) wrapped symbol
#define NVML(symbol, ...) wrapped symbol
#define NVML_USE(symbol, ...) unwrapped

    .set row, 0 /* as enum gc_row_id counts */

#if defined(__x86_64__)

    .macro code symbol
    .type \symbol, @function
    .p2align 5
\symbol:
entry_\symbol:
    .cfi_startproc
    movl $row, %eax
    movl $row, %eax
    movl $row, %eax
    jmp *gc_entry_targets + 8 * row(%rip)
    .cfi_endproc
    .size \symbol, . - \symbol
    .endm

    .text
    .globl gc_entry_unbound
    .hidden gc_entry_unbound
    .type gc_entry_unbound, @function
gc_entry_unbound:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    pushq %rcx
    .cfi_adjust_cfa_offset 8
    pushq %r8
    .cfi_adjust_cfa_offset 8
    pushq %r9
    .cfi_adjust_cfa_offset 8
    subq $72, %rsp /* four floating-point arguments, more than any row has */
    .cfi_adjust_cfa_offset 72
    movups %xmm0, (%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    movl %eax, %edi
    call gc_entry_bind
    movups (%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    addq $72, %rsp
    .cfi_adjust_cfa_offset -72
    popq %r9
    .cfi_adjust_cfa_offset -8
    popq %r8
    .cfi_adjust_cfa_offset -8
    popq %rcx
    .cfi_adjust_cfa_offset -8
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
    .cfi_endproc
    .size gc_entry_unbound, . - gc_entry_unbound

#elif defined(__aarch64__)

    .macro code symbol
    .type \symbol, %function
    .p2align 5
\symbol:
entry_\symbol:
    .cfi_startproc
    mov w17, #row
    mov w17, #row
    mov w17, #row
    mov w17, #row
    adrp x16, gc_entry_targets + 8 * row
    ldr x16, [x16, #:lo12:gc_entry_targets + 8 * row]
    br x16
    .cfi_endproc
    .size \symbol, . - \symbol
    .endm

    .text
    .globl gc_entry_unbound
    .hidden gc_entry_unbound
    .type gc_entry_unbound, %function
gc_entry_unbound:
    .cfi_startproc
    stp x29, x30, [sp, #-144]!
    .cfi_def_cfa_offset 144
    .cfi_offset x29, -144
    .cfi_offset x30, -136
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp q0, q1, [sp, #80]
    stp q2, q3, [sp, #112]
    mov w0, w17
    bl gc_entry_bind
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp q0, q1, [sp, #80]
    ldp q2, q3, [sp, #112]
    ldp x29, x30, [sp], #144
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size gc_entry_unbound, . - gc_entry_unbound

#else
#error "entry_exports.S knows x86-64 and aarch64"
#endif

    .macro wrapped symbol
    .text
    .globl \symbol
    code \symbol
    .section .data.rel.local, "aw"
    .quad gc_entry_unbound
    .section .rodata
    .long entry_\symbol - gc_entry_exports
    .long wrapper_\symbol - gc_entry_exports
    .set row, row + 1
    .endm

    .macro unwrapped
    .section .data.rel.local, "aw"
    .quad 0
    .section .rodata
    .long 0, 0
    .set row, row + 1
    .endm

    .section .data.rel.local, "aw"
    .globl gc_entry_targets
    .hidden gc_entry_targets
    .p2align 3
gc_entry_targets:
    .section .rodata
    .globl gc_entry_exports
    .hidden gc_entry_exports
    .p2align 3
gc_entry_exports:
#include "shim/api.def"

    .section .note.GNU-stack, "", %progbits
