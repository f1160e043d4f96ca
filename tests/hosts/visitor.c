// The least profiler that attaches and detaches again: what a runtime keeps of each visit is not corprof's. It writes how many
// bytes of the process's memory are allocated.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int32_t HRESULT;
typedef struct { uint32_t a; uint16_t b, c; uint8_t d[8]; } GUID;
typedef struct Object { HRESULT (**vtable)(struct Object *); } Object;
typedef HRESULT (*QueryInterface)(void *, const GUID *, void **);

enum { INITIALIZE_FOR_ATTACH = 80, PROFILER_ATTACH_COMPLETE = 81, SLOTS = 83, REQUEST_PROFILER_DETACH = 58 };

static const GUID INFO3 = { 0xB555ED4F, 0x452A, 0x4E54, { 0x8B, 0x39, 0xB5, 0x36, 0x0B, 0xAD, 0x32, 0xA0 } };
// The newer versions have slots that this object lacks.
static const uint32_t CALLBACKS[] = { 0x176FBED1, 0x8A8CC829, 0x4FD2ED52, 0 };
static const uint32_t FACTORY = 1;

static void *info;

static HRESULT ok(Object *this) { (void)this; return 0; }

static HRESULT query_interface(Object *this, const GUID *iid, void **out)
{
    for (unsigned i = 0; i < sizeof CALLBACKS / sizeof *CALLBACKS; i++)
        if (iid->a == CALLBACKS[i]) { *out = this; return 0; }
    *out = 0;
    return 0x80004002;
}

static HRESULT query_factory(Object *this, const GUID *iid, void **out)
{
    *out = iid->a == FACTORY || iid->a == 0 ? this : 0;
    return *out ? 0 : 0x80004002;
}

static HRESULT initialize_for_attach(Object *this, Object *runtime)
{
    (void)this;
    fprintf(stderr, "visitor| in use: %zu\n", mallinfo2().uordblks + mallinfo2().hblkhd);
    return ((QueryInterface)(void *)runtime->vtable[0])(runtime, &INFO3, &info);
}

static HRESULT profiler_attach_complete(Object *this)
{
    (void)this;
    Object *runtime = info;
    return ((HRESULT (*)(Object *, uint32_t))(void *)runtime->vtable[REQUEST_PROFILER_DETACH])(runtime, 300);
}

static HRESULT (*callbacks[SLOTS])(Object *);
static Object profiler = { callbacks };

static HRESULT create_instance(Object *this, void *outer, const GUID *iid, void **out)
{
    (void)this, (void)outer;
    return query_interface(&profiler, iid, out);
}

static HRESULT (*factory_slots[5])(Object *);
static Object factory = { factory_slots };

HRESULT DllGetClassObject(const GUID *clsid, const GUID *iid, void **out)
{
    (void)clsid;
    for (int i = 0; i < SLOTS; i++) callbacks[i] = ok;
    for (int i = 0; i < 5; i++) factory_slots[i] = ok;
    callbacks[0] = (HRESULT (*)(Object *))(void *)query_interface;
    callbacks[INITIALIZE_FOR_ATTACH] = (HRESULT (*)(Object *))(void *)initialize_for_attach;
    callbacks[PROFILER_ATTACH_COMPLETE] = profiler_attach_complete;
    factory_slots[0] = (HRESULT (*)(Object *))(void *)query_factory;
    factory_slots[3] = (HRESULT (*)(Object *))(void *)create_instance;
    // Like corprof's, the library stays mapped.
    Dl_info own;
    if (dladdr(&profiler, &own)) dlopen(own.dli_fname, RTLD_NOW | RTLD_NODELETE);
    return query_factory(&factory, iid, out);
}
