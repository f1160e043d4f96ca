/* What a profiler costs at the least: the floor that `cargo xtask bench` measures corprof against.
 *
 * Written as a C author would who wants nothing but speed: no runtime library of its own, no headers but the system's, and
 * the vtables filled by hand. Slot numbers are those of corprof-sys/tests/oracle/vtables.json.
 *
 *     cc -O2 -shared -fPIC -o libfloor_nothing.so floor.c              asks for no event
 *     cc -O2 -shared -fPIC -DCOUNT -o libfloor_count.so floor.c        counts allocated objects
 *     cc -O2 -shared -fPIC -DCOUNT_CLASSES -o libfloor_classes.so floor.c     counts objects and bytes by class
 *     cc -O2 -shared -fPIC -DCOUNT_LOADS -o libfloor_loads.so floor.c  counts modules that go, and classes and code that come
 *     cc -O2 -shared -fPIC -DCOUNT_CALLS -o libfloor_calls.so floor.c hooks.S     counts calls, each thread by itself
 *     cc -O2 -shared -fPIC -DHOOK_RETURNS -o libfloor_return.so floor.c hooks.S   has hooks that only return
 *     cc -O2 -shared -fPIC -DHOOK_RETURNS -DASK_NAMES -o libfloor_names.so floor.c hooks.S   and asks for the names of functions
 *     cc -O2 -shared -fPIC -DSHADOW -o libfloor_shadow.so floor.c shadow.c hooks.S   knows what runs and since when
 *
 * The corprof profilers that do the same are tests/profilers/bench_nothing.rs, bench_count.rs, bench_loads.rs,
 * bench_hooks.rs and bench_shadow.rs, and profilers/library/allocations.rs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t HRESULT;
typedef struct { uint32_t a; uint16_t b, c; uint8_t d[8]; } GUID;

/* Any entry of a vtable. On the systems that .NET runs on the caller clears the stack away, so a function may take fewer
 * arguments than it is called with. */
typedef void (*Method)(void);

/* A COM object: a pointer to its vtable. Both of ours are constants that live for ever, so nothing counts references. */
typedef struct { const Method *vtable; } Object;

#define S_OK ((HRESULT)0)
#define S_FALSE ((HRESULT)1)
#define E_NOINTERFACE ((HRESULT)0x80004002)
#define E_POINTER ((HRESULT)0x80004003)
#define CLASS_E_CLASSNOTAVAILABLE ((HRESULT)0x80040111)

#define COR_PRF_MONITOR_CLASS_LOADS 0x00000002u
#define COR_PRF_MONITOR_MODULE_LOADS 0x00000004u
#define COR_PRF_MONITOR_JIT_COMPILATION 0x00000020u
#define COR_PRF_MONITOR_OBJECT_ALLOCATED 0x00000100u
#define COR_PRF_MONITOR_ENTERLEAVE 0x00001000u
#define COR_PRF_ENABLE_OBJECT_ALLOCATED 0x00800000u

static const GUID CLSID_FLOOR = {0xf1003c00, 0x7b3e, 0x4d7a, {0x9a, 0x51, 0x2c, 0x8e, 0x40, 0xd6, 0x1b, 0x77}};
/* The same once more, where the project's tools look for it (xtask/src/profiler.rs). */
const char CORPROF_PROFILER_Floor[] = "corprof-profiler 1 {F1003C00-7B3E-4D7A-9A51-2C8E40D61B77} Floor";

static const GUID IID_IUNKNOWN = {0, 0, 0, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};
static const GUID IID_ICLASSFACTORY = {1, 0, 0, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};
static const GUID IID_INFO5 = {0x07602928, 0xce38, 0x4b83, {0x81, 0xe7, 0x74, 0xad, 0xaf, 0x78, 0x12, 0x14}};

/* ICorProfilerCallback to ICorProfilerCallback11: each extends the one before, so one vtable serves all of them. */
static const GUID IID_CALLBACKS[] = {
    {0x176fbed1, 0xa55c, 0x4796, {0x98, 0xca, 0xa9, 0xda, 0x0e, 0xf8, 0x83, 0xe7}},
    {0x8a8cc829, 0xccf2, 0x49fe, {0xbb, 0xae, 0x0f, 0x02, 0x22, 0x28, 0x07, 0x1a}},
    {0x4fd2ed52, 0x7731, 0x4b8d, {0x94, 0x69, 0x03, 0xd2, 0xcc, 0x30, 0x86, 0xc5}},
    {0x7b63b2e3, 0x107d, 0x4d48, {0xb2, 0xf6, 0xf6, 0x1e, 0x22, 0x94, 0x70, 0xd2}},
    {0x8dfba405, 0x8c9f, 0x45f8, {0xbf, 0xfa, 0x83, 0xb1, 0x4c, 0xef, 0x78, 0xb5}},
    {0xfc13df4b, 0x4448, 0x4f4f, {0x95, 0x0c, 0xba, 0x8d, 0x19, 0xd0, 0x0c, 0x36}},
    {0xf76a2dba, 0x1d52, 0x4539, {0x86, 0x6c, 0x2a, 0xa5, 0x18, 0xf9, 0xef, 0xc3}},
    {0x5bed9b15, 0xc079, 0x4d47, {0xbf, 0xe2, 0x21, 0x5a, 0x14, 0x0c, 0x07, 0xe0}},
    {0x27583ec3, 0xc8f5, 0x482f, {0x80, 0x52, 0x19, 0x4b, 0x8c, 0xe4, 0x70, 0x5a}},
    {0xcec5b60e, 0xc69c, 0x495f, {0x87, 0xf6, 0x84, 0xd2, 0x8e, 0xe1, 0x6f, 0xfb}},
    {0x42350846, 0xaaed, 0x47f7, {0xb1, 0x28, 0xfd, 0x0c, 0x98, 0x88, 0x1c, 0xde}},
};

static int is(const GUID *left, const GUID *right) { return memcmp(left, right, sizeof *left) == 0; }

static HRESULT nothing(void) { return S_OK; }
/* AddRef and Release of a constant: the answer must only not be 0. */
static HRESULT one(void) { return 1; }

#ifdef COUNT
static uint64_t counted;

static HRESULT object_allocated(void) {
    __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
    return S_OK;
}
#define OBJECT_ALLOCATED object_allocated
/* corprof asks for the loads of modules besides, for its own bookkeeping; that is part of what it costs. */
#define EVENTS (COR_PRF_ENABLE_OBJECT_ALLOCATED | COR_PRF_MONITOR_OBJECT_ALLOCATED)
#elif defined COUNT_CLASSES
/* A table for each thread, in a list of all: slots by class, a power of two of them, at least half of them free. */
typedef struct { uintptr_t class; uint64_t objects, bytes; } Count;
typedef struct Table { Count *counts; size_t room, used; struct Table *next; } Table;
static Table *all_tables;
static __thread Table *table __attribute__((tls_model("initial-exec")));
static Object *runtime_info;

static Count *count_of(Table *in, uintptr_t class) {
    size_t at = (class * 0x9e3779b97f4a7c15u) >> 32 & (in->room - 1);
    while (in->counts[at].class && in->counts[at].class != class) at = (at + 1) & (in->room - 1);
    return &in->counts[at];
}

static __attribute__((noinline, cold)) Table *grow(Table *old) {
    Table *mine = old ? old : calloc(1, sizeof *mine);
    if (!mine) abort();
    Table larger = {calloc(old ? 2 * old->room : 64, sizeof(Count)), old ? 2 * old->room : 64, mine->used, mine->next};
    if (!larger.counts) abort();
    for (size_t at = 0; at < mine->room; at++)
        if (mine->counts[at].class) *count_of(&larger, mine->counts[at].class) = mine->counts[at];
    free(mine->counts);
    *mine = larger;
    if (!old) {
        table = mine;
        mine->next = __atomic_load_n(&all_tables, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&all_tables, &mine->next, mine, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
    }
    return mine;
}

static HRESULT object_allocated(Object *this, uintptr_t object, uintptr_t class) {
    Table *mine = table;
    size_t size = 0;
    (void)this;
    if (__builtin_expect(!mine || 2 * mine->used >= mine->room, 0)) mine = grow(mine);
    /* Slot 80 of ICorProfilerInfo4 is GetObjectSize2. */
    ((HRESULT(*)(Object *, uintptr_t, size_t *))runtime_info->vtable[80])(runtime_info, object, &size);
    Count *count = count_of(mine, class);
    if (__builtin_expect(!count->class, 0)) count->class = class, mine->used++;
    count->objects++;
    count->bytes += size;
    return S_OK;
}
#define OBJECT_ALLOCATED object_allocated
#define EVENTS (COR_PRF_ENABLE_OBJECT_ALLOCATED | COR_PRF_MONITOR_OBJECT_ALLOCATED)
#elif defined COUNT_LOADS
static uint64_t modules, classes, functions;

static HRESULT module_unload_started(void) {
    __atomic_fetch_add(&modules, 1, __ATOMIC_RELAXED);
    return S_OK;
}

static HRESULT class_load_finished(void) {
    __atomic_fetch_add(&classes, 1, __ATOMIC_RELAXED);
    return S_OK;
}

static HRESULT jit_compilation_started(void) {
    __atomic_fetch_add(&functions, 1, __ATOMIC_RELAXED);
    return S_OK;
}
#define OBJECT_ALLOCATED nothing
#define EVENTS (COR_PRF_MONITOR_MODULE_LOADS | COR_PRF_MONITOR_CLASS_LOADS | COR_PRF_MONITOR_JIT_COMPILATION)
#elif defined COUNT_CALLS || defined HOOK_RETURNS || defined SHADOW
#define HOOKS
#define OBJECT_ALLOCATED nothing
#define EVENTS COR_PRF_MONITOR_ENTERLEAVE
#else
#define OBJECT_ALLOCATED nothing
#define EVENTS 0u
#endif

#ifdef HOOKS
/* hooks.S. */
void hook_enter(void), hook_leave(void), hook_return(void);
#endif

#ifdef SHADOW
/* shadow.c. */
void report_calls(void);
#elif defined HOOKS
void entered(uintptr_t function), left(uintptr_t function);

/* The calls of a thread, in a list of all. */
typedef struct Calls { uint64_t entered, left; struct Calls *next; } Calls;
static Calls *all_calls, none;
static __thread Calls *calls __attribute__((tls_model("initial-exec")));

static __attribute__((noinline, cold)) Calls *first_call(void) {
    calls = calloc(1, sizeof *calls);
    if (!calls) return &none;
    calls->next = __atomic_load_n(&all_calls, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&all_calls, &calls->next, calls, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
    return calls;
}

__attribute__((visibility("hidden"))) void entered(uintptr_t function) {
    Calls *mine = calls;
    (void)function;
    if (__builtin_expect(!mine, 0)) mine = first_call();
    mine->entered++;
}

__attribute__((visibility("hidden"))) void left(uintptr_t function) {
    Calls *mine = calls;
    (void)function;
    if (__builtin_expect(!mine, 0)) mine = first_call();
    mine->left++;
}
#endif

#ifdef ASK_NAMES
static const GUID IID_IMPORT = {0x7dac8207, 0xd3ae, 0x4c75, {0x9b, 0x67, 0x92, 0x80, 0x1a, 0x49, 0x7d, 0x44}};
static Object *names_info;
static uint64_t name_lengths;

/* FunctionIDMapper2: the calls that the name of a method and of its class take. Nothing is made of the answers. */
static uintptr_t ask_name(uintptr_t function, void *data, int32_t *hook) {
    uintptr_t class = 0, module = 0;
    uint32_t token = 0, args = 0, owner = 0, flags = 0, rva = 0, impl = 0, extends = 0, length = 0, size = 0;
    uint16_t name[512];
    const uint8_t *signature;
    Object *import = NULL;
    (void)data;
    *hook = 1;
    /* Slot 38 is GetFunctionInfo2, slot 21 GetModuleMetaData; slots 30 and 12 of IMetaDataImport GetMethodProps and
     * GetTypeDefProps. */
    if (((HRESULT(*)(Object *, uintptr_t, uintptr_t, uintptr_t *, uintptr_t *, uint32_t *, uint32_t, uint32_t *,
                     uintptr_t *))names_info->vtable[38])(names_info, function, 0, &class, &module, &token, 0, &args, NULL) < 0)
        return function;
    if (((HRESULT(*)(Object *, uintptr_t, uint32_t, const GUID *, Object **))names_info->vtable[21])(names_info, module, 0,
                                                                                               &IID_IMPORT, &import) < 0 ||
        !import)
        return function;
    ((HRESULT(*)(Object *, uint32_t, uint32_t *, uint16_t *, uint32_t, uint32_t *, uint32_t *, const uint8_t **, uint32_t *,
                 uint32_t *, uint32_t *))import->vtable[30])(import, token, &owner, name, 512, &length, &flags, &signature, &size,
                                                             &rva, &impl);
    __atomic_fetch_add(&name_lengths, length, __ATOMIC_RELAXED);
    ((HRESULT(*)(Object *, uint32_t, uint16_t *, uint32_t, uint32_t *, uint32_t *, uint32_t *))import->vtable[12])(
        import, owner, name, 512, &length, &flags, &extends);
    __atomic_fetch_add(&name_lengths, length, __ATOMIC_RELAXED);
    ((HRESULT(*)(Object *))import->vtable[2])(import);
    return function;
}
#endif

static HRESULT initialize(Object *this, Object *runtime) {
    Object *info = NULL;
    HRESULT code;
    (void)this;
    /* Slot 0 is QueryInterface, slot 2 Release, and slot 82 of ICorProfilerInfo5 SetEventMask2. */
    code = ((HRESULT(*)(Object *, const GUID *, Object **))runtime->vtable[0])(runtime, &IID_INFO5, &info);
    if (code < 0) return code;
    code = ((HRESULT(*)(Object *, uint32_t, uint32_t))info->vtable[82])(info, EVENTS, 0);
#ifdef HOOK_RETURNS
    Method enter = hook_return, leave = hook_return;
#elif defined HOOKS
    Method enter = hook_enter, leave = hook_leave;
#endif
#ifdef HOOKS
    /* Slot 61 of ICorProfilerInfo3 is SetEnterLeaveFunctionHooks3. */
    if (code >= 0) code = ((HRESULT(*)(Object *, Method, Method, Method))info->vtable[61])(info, enter, leave, NULL);
#endif
#ifdef ASK_NAMES
    /* Slot 59 of ICorProfilerInfo3 is SetFunctionIDMapper2. */
    names_info = info; /* kept */
    if (code >= 0) code = ((HRESULT(*)(Object *, void *, void *))info->vtable[59])(info, (void *)ask_name, NULL);
#elif defined COUNT_CLASSES
    runtime_info = info; /* kept */
#else
    ((HRESULT(*)(Object *))info->vtable[2])(info);
#endif
    return code;
}

static HRESULT shutdown(void) {
#ifdef COUNT
    fprintf(stderr, "counted=%llu\n", (unsigned long long)__atomic_load_n(&counted, __ATOMIC_RELAXED));
#elif defined COUNT_CLASSES
    uint64_t counted = 0, bytes = 0;
    for (Table *each = __atomic_load_n(&all_tables, __ATOMIC_ACQUIRE); each; each = each->next)
        for (size_t at = 0; at < each->room; at++) counted += each->counts[at].objects, bytes += each->counts[at].bytes;
    fprintf(stderr, "counted=%llu\nbytes=%llu\n", (unsigned long long)counted, (unsigned long long)bytes);
#elif defined COUNT_LOADS
    fprintf(stderr, "modules=%llu\nclasses=%llu\nfunctions=%llu\n", (unsigned long long)modules, (unsigned long long)classes,
            (unsigned long long)functions);
#elif defined ASK_NAMES
    fprintf(stderr, "names=%llu\n", (unsigned long long)__atomic_load_n(&name_lengths, __ATOMIC_RELAXED));
#elif defined SHADOW
    report_calls();
#elif defined COUNT_CALLS
    uint64_t counted = none.entered, all_left = none.left;
    for (Calls *each = __atomic_load_n(&all_calls, __ATOMIC_ACQUIRE); each; each = each->next) {
        counted += each->entered;
        all_left += each->left;
    }
    fprintf(stderr, "counted=%llu\nleft=%llu\n", (unsigned long long)counted, (unsigned long long)all_left);
#endif
    return S_OK;
}

static HRESULT load_as_notification_only(Object *this, int32_t *answer) {
    (void)this;
    if (!answer) return E_POINTER;
    *answer = 0;
    return S_OK;
}

static HRESULT profiler_query_interface(Object *this, const GUID *iid, Object **out) {
    size_t at = 0, count = sizeof IID_CALLBACKS / sizeof *IID_CALLBACKS;
    if (!iid || !out) return E_POINTER;
    while (at < count && !is(iid, &IID_CALLBACKS[at])) at++;
    *out = at < count || is(iid, &IID_IUNKNOWN) ? this : NULL;
    return *out ? S_OK : E_NOINTERFACE;
}

/* The 98 slots of ICorProfilerCallback11. Every event that is not ours does nothing: it is not asked for. */
static const Method PROFILER_VTABLE[98] = {
    [0] = (Method)profiler_query_interface,
    [1] = (Method)one,
    [2] = (Method)one,
    [3] = (Method)initialize,
    [4] = (Method)shutdown,
#ifdef COUNT_LOADS
    [5 ... 14] = (Method)nothing,
    [15] = (Method)module_unload_started,
    [16 ... 18] = (Method)nothing,
    [19] = (Method)class_load_finished,
    [20 ... 22] = (Method)nothing,
    [23] = (Method)jit_compilation_started,
    [24 ... 49] = (Method)nothing,
#else
    [5 ... 49] = (Method)nothing,
#endif
    [50] = (Method)OBJECT_ALLOCATED,
    [51 ... 96] = (Method)nothing,
    [97] = (Method)load_as_notification_only,
};
static Object profiler = {PROFILER_VTABLE};

static HRESULT factory_query_interface(Object *this, const GUID *iid, Object **out) {
    if (!iid || !out) return E_POINTER;
    *out = is(iid, &IID_IUNKNOWN) || is(iid, &IID_ICLASSFACTORY) ? this : NULL;
    return *out ? S_OK : E_NOINTERFACE;
}

static HRESULT create_instance(Object *this, void *outer, const GUID *iid, Object **out) {
    (void)this, (void)outer;
    return profiler_query_interface(&profiler, iid, out);
}

/* IClassFactory: IUnknown, CreateInstance, LockServer. */
static const Method FACTORY_VTABLE[5] = {
    [0] = (Method)factory_query_interface,
    [1] = (Method)one,
    [2] = (Method)one,
    [3] = (Method)create_instance,
    [4] = (Method)nothing,
};
static Object factory = {FACTORY_VTABLE};

__attribute__((visibility("default"))) HRESULT DllGetClassObject(const GUID *clsid, const GUID *iid, Object **out) {
    if (!clsid || !out) return E_POINTER;
    if (!is(clsid, &CLSID_FLOOR)) return CLASS_E_CLASSNOTAVAILABLE;
    return factory_query_interface(&factory, iid, out);
}

__attribute__((visibility("default"))) HRESULT DllCanUnloadNow(void) { return S_FALSE; }
