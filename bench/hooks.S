/* Enter/leave hooks of the profiler in C (floor.c), for x86-64 System V: what the runtime asks of a fast-path hook, by hand.
 *
 * Enter is called with the function's number in r14 while the method's arguments are in their registers, Leave with it in rdi
 * and the result in its registers. As a C author cannot know what a method takes or what the compiler uses, all of them are
 * kept, vectors whole. Of the caller's stack pointer, in r15 and rsi, only shadow.c makes use.
 */
    .intel_syntax noprefix
    .text

    .globl hook_return
    .hidden hook_return
    .type hook_return, @function
hook_return:
    ret

    .globl hook_enter
    .hidden hook_enter
    .type hook_enter, @function
hook_enter:
    .cfi_startproc
    sub rsp, 200
    .cfi_adjust_cfa_offset 200
    mov [rsp], rax
    mov [rsp + 8], rdi
    mov [rsp + 16], rsi
    mov [rsp + 24], rdx
    mov [rsp + 32], rcx
    mov [rsp + 40], r8
    mov [rsp + 48], r9
    movaps [rsp + 64], xmm0
    movaps [rsp + 80], xmm1
    movaps [rsp + 96], xmm2
    movaps [rsp + 112], xmm3
    movaps [rsp + 128], xmm4
    movaps [rsp + 144], xmm5
    movaps [rsp + 160], xmm6
    movaps [rsp + 176], xmm7
    mov rdi, r14
#ifdef SHADOW
    mov rsi, r15
#endif
    call entered
    movaps xmm7, [rsp + 176]
    movaps xmm6, [rsp + 160]
    movaps xmm5, [rsp + 144]
    movaps xmm4, [rsp + 128]
    movaps xmm3, [rsp + 112]
    movaps xmm2, [rsp + 96]
    movaps xmm1, [rsp + 80]
    movaps xmm0, [rsp + 64]
    mov r9, [rsp + 48]
    mov r8, [rsp + 40]
    mov rcx, [rsp + 32]
    mov rdx, [rsp + 24]
    mov rsi, [rsp + 16]
    mov rdi, [rsp + 8]
    mov rax, [rsp]
    add rsp, 200
    .cfi_adjust_cfa_offset -200
    ret
    .cfi_endproc

    .globl hook_leave
    .hidden hook_leave
    .type hook_leave, @function
hook_leave:
    .cfi_startproc
    sub rsp, 56
    .cfi_adjust_cfa_offset 56
    mov [rsp], rax
    mov [rsp + 8], rdx
    movaps [rsp + 16], xmm0
    movaps [rsp + 32], xmm1
    call left
    movaps xmm1, [rsp + 32]
    movaps xmm0, [rsp + 16]
    mov rdx, [rsp + 8]
    mov rax, [rsp]
    add rsp, 56
    .cfi_adjust_cfa_offset -56
    ret
    .cfi_endproc

    .section .note.GNU-stack, "", @progbits
