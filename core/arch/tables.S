/* The generated tables, each closed by NUL . The assembler takes their bytes as they are: as arrays of C they would be
 * 18 MB of text, for compilers and checkers to read. Paths are from the project's root, where compilers run. */
    .macro begin name
    .globl \name
    .hidden \name
    .type \name, %object
\name:
    .endm

    .macro end name
    .byte 0
    .size \name, . - \name
    .endm

    .section .rodata.gc_arch_architectures, "a", %progbits
    begin gc_arch_architectures
    .incbin "core/arch/architectures_more.txt"
    .incbin "core/arch/architectures.txt"
    end gc_arch_architectures

    .section .rodata.gc_arch_frames, "a", %progbits
    begin gc_arch_frames
    .incbin "core/arch/frames.txt"
    end gc_arch_frames

    .section .rodata.gc_arch_training, "a", %progbits
    begin gc_arch_training
    .incbin "core/arch/training.txt"
    end gc_arch_training

    .section .note.GNU-stack, "", %progbits
