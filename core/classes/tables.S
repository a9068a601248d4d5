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

    .section .rodata.gc_classes_architectures, "a", %progbits
    begin gc_classes_architectures
    .incbin "core/classes/architectures_more.txt"
    .incbin "core/classes/architectures.txt"
    end gc_classes_architectures

    .section .rodata.gc_classes_frames, "a", %progbits
    begin gc_classes_frames
    .incbin "core/classes/frames.txt"
    end gc_classes_frames

    .section .rodata.gc_classes_training, "a", %progbits
    begin gc_classes_training
    .incbin "core/classes/training.txt"
    end gc_classes_training

    .section .note.GNU-stack, "", %progbits
