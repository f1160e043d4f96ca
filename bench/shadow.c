/* A shadow stack with times, for the profiler in C (floor.c, hooks.S): what runs on each thread and since when.
 *
 * As corprof's (tests/profilers/bench_shadow.rs), it stays right when an exception has left functions: a hook knows the stack
 * pointer of its function's caller, and whatever lies below that is gone. The counter of the processor is read once in a hook.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

#define DEPTH 131072

/* A function that is running. */
typedef struct { uintptr_t stack_pointer, function; uint64_t began; } Call;

/* A thread, in a list of all. The lowest entry of its stack is nobody's, and above all that could be. */
typedef struct Thread {
    Call *top, *end;
    uint64_t entered, left, ticks, lost;
    struct Thread *next;
    Call calls[];
} Thread;

static Thread *all_threads;
static __thread Thread *thread __attribute__((tls_model("initial-exec")));

static __attribute__((noinline, cold)) Thread *first_call(void) {
    /* Pages that are not touched cost nothing. */
    Thread *mine = calloc(1, sizeof *mine + (DEPTH + 1) * sizeof(Call));
    if (!mine) abort();
    mine->calls[0].stack_pointer = UINTPTR_MAX;
    mine->top = mine->calls;
    mine->end = mine->calls + DEPTH;
    mine->next = __atomic_load_n(&all_threads, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&all_threads, &mine->next, mine, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
    return thread = mine;
}

__attribute__((visibility("hidden"))) void entered(uintptr_t function, uintptr_t stack_pointer) {
    Thread *mine = thread;
    if (__builtin_expect(!mine, 0)) mine = first_call();
    uint64_t now = __rdtsc();
    Call *top = mine->top;
    while (__builtin_expect(top->stack_pointer <= stack_pointer, 0)) top--;
    if (__builtin_expect(top == mine->end, 0)) {
        mine->lost++;
    } else {
        *++top = (Call){stack_pointer, function, now};
        mine->entered++;
    }
    mine->top = top;
}

__attribute__((visibility("hidden"))) void left(uintptr_t function, uintptr_t stack_pointer) {
    Thread *mine = thread;
    (void)function;
    if (__builtin_expect(!mine, 0)) mine = first_call();
    uint64_t now = __rdtsc();
    Call *top = mine->top;
    while (__builtin_expect(top->stack_pointer < stack_pointer, 0)) top--;
    if (__builtin_expect(top->stack_pointer == stack_pointer, 1)) {
        mine->ticks += now - top->began;
        mine->left++;
        top--;
    }
    mine->top = top;
}

__attribute__((visibility("hidden"))) void report_calls(void) {
    uint64_t entered = 0, left = 0, ticks = 0, lost = 0;
    for (Thread *each = __atomic_load_n(&all_threads, __ATOMIC_ACQUIRE); each; each = each->next) {
        entered += each->entered;
        left += each->left;
        ticks += each->ticks;
        lost += each->lost;
    }
    fprintf(stderr, "counted=%llu\nleft=%llu\nticks=%llu\nlost=%llu\n", (unsigned long long)entered,
            (unsigned long long)left, (unsigned long long)ticks, (unsigned long long)lost);
}
