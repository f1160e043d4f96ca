/* Stack walks as a C author makes them: what `cargo xtask bench` measures corprof's walks against.
 *
 * tests/profilers/bench_walks.rs loads this library and takes turns with it, in one callback or on one thread, so that both
 * sides walk the same stacks. Slot numbers are those of corprof-sys/tests/oracle/vtables.json.
 *
 *     cc -O2 -shared -fPIC -o libwalks.so walks.c
 */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef int32_t HRESULT;
typedef void (*Method)(void);
typedef struct { const Method *vtable; } Object;
typedef HRESULT (*OnFrame)(uintptr_t, uintptr_t, uintptr_t, uint32_t, uint8_t *, void *);

#define MOST_THREADS 256
#define MOST_FRAMES (64 * 1024)

typedef struct { uintptr_t function, ip; } Frame;
typedef struct { uint64_t frames, sum; } Seen;

static HRESULT walk(Object *info, uintptr_t thread, OnFrame on_frame, void *data) {
    return ((HRESULT(*)(Object *, uintptr_t, OnFrame, uint32_t, void *, uint8_t *, uint32_t))info->vtable[36])(
        info, thread, on_frame, 0, data, NULL, 0);
}

static HRESULT add(uintptr_t function, uintptr_t ip, uintptr_t info, uint32_t size, uint8_t *context, void *data) {
    Seen *seen = data;
    (void)info, (void)size, (void)context;
    seen->frames++;
    seen->sum += function + ip;
    return 0;
}

/* Walks the stack of the calling thread so many times; adds up what is seen. */
__attribute__((visibility("default"))) uint64_t walk_own(Object *info, uint64_t walks, uint64_t *frames) {
    Seen seen = {0, 0};
    for (uint64_t i = 0; i < walks; i++) walk(info, 0, add, &seen);
    *frames = seen.frames;
    return seen.sum;
}

/* The memory of a round, there before threads are stopped. */
static Frame frames[MOST_FRAMES];
static size_t used;

static HRESULT write_down(uintptr_t function, uintptr_t ip, uintptr_t info, uint32_t size, uint8_t *context, void *data) {
    (void)info, (void)size, (void)context, (void)data;
    if (used == MOST_FRAMES) return 1;
    frames[used++] = (Frame){function, ip};
    return 0;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Stops all threads, writes down their stacks and lets them run again. Answers for how many nanoseconds they stood still, or 0
 * if they could not be stopped; and how many stacks there were of `deep` frames at least, and their frames in all. */
__attribute__((visibility("default"))) uint64_t walk_all(Object *info, size_t deep, size_t *stacks, size_t *in_them) {
    uintptr_t threads[MOST_THREADS];
    size_t ends[MOST_THREADS], start = 0;
    uint32_t count = 0;
    uint64_t before, after;
    Object *list = NULL;
    *stacks = *in_them = 0;
    if (((HRESULT(*)(Object *, Object **))info->vtable[71])(info, &list) < 0) return 0;
    ((HRESULT(*)(Object *, uint32_t, uintptr_t *, uint32_t *))list->vtable[7])(list, MOST_THREADS, threads, &count);
    ((HRESULT(*)(Object *))list->vtable[2])(list);
    used = 0;

    before = now();
    if (((HRESULT(*)(Object *))info->vtable[97])(info) < 0) return 0;
    for (uint32_t i = 0; i < count; i++) {
        walk(info, threads[i], write_down, NULL);
        ends[i] = used;
    }
    ((HRESULT(*)(Object *))info->vtable[98])(info);
    after = now();

    for (uint32_t i = 0; i < count; start = ends[i++]) {
        if (ends[i] - start >= deep) ++*stacks, *in_them += ends[i] - start;
    }
    return after - before;
}
