/*
 * What LD_PRELOAD puts between Wine and the C library, for the programs that tests run. It mends two faults of Wine's, by which
 * a process dies of SIGSEGV while it ends, and its exit code is lost. When a process ends, Wine ends its other threads by
 * SIGQUIT.
 *
 * 1. A thread that is ending of its own accord just then gets the signal while the C library takes it apart. Wine's handler
 *    finds no thread environment block any more. Any thread that ends right before its process will do; a sampler's is one.
 *    Here a thread that has begun to end takes the signal no more. The end of the process ends it all the same.
 *
 * 2. A thread that gets the signal leaves what it is at by pthread_exit, from another place of its stack. Cleanup handlers of
 *    the C library's, which lie on that stack, may be overwritten by then, and the C library calls them. Here such a thread, in
 *    whose handler the signal is blocked, is ended by the kernel, without a word to the C library. (Seen only where this library
 *    mended the first: in 150 runs without any it did not come.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void (*real)(void *);

__attribute__((constructor)) static void find(void)
{
    real = (void (*)(void *))dlsym(RTLD_NEXT, "pthread_exit");
}

void pthread_exit(void *value)
{
    sigset_t quit, before;

    sigemptyset(&quit);
    sigaddset(&quit, SIGQUIT);
    if (!pthread_sigmask(SIG_BLOCK, &quit, &before) && sigismember(&before, SIGQUIT))
        syscall(SYS_exit, 0);
    if (real)
        real(value);
    abort();
}
