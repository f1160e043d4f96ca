/* Calls into the runtime as a C author makes them: what `cargo xtask bench` measures corprof's forms of the same calls against.
 *
 * tests/profilers/bench_calls.rs loads this library and takes turns with it, inside one callback, so that both sides ask the
 * same about the same. Slot numbers are those of corprof-sys/tests/oracle/vtables.json. Each function repeats its call and
 * returns the sum of the answers, so that no compiler can leave a call out and the other side can check that it got the same.
 *
 *     cc -O2 -shared -fPIC -o libcalls.so calls.c
 */
#include <stddef.h>
#include <stdint.h>

typedef int32_t HRESULT;
typedef void (*Method)(void);
typedef struct { const Method *vtable; } Object;
typedef uint16_t Char;

/* Longer names are not asked for. */
#define ROOM 512
#define MOST_ARGS 8

__attribute__((visibility("default"))) uintptr_t function_from_ip(Object *info, const uintptr_t *ips, size_t count) {
    uintptr_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uintptr_t function = 0;
        if (((HRESULT(*)(Object *, uintptr_t, uintptr_t *))info->vtable[7])(info, ips[i], &function) >= 0) sum += function;
    }
    return sum;
}

static HRESULT ask_function(Object *info, uintptr_t function, uintptr_t *class, uintptr_t *module, uint32_t *token,
                            uint32_t *args) {
    uintptr_t arg[MOST_ARGS];
    return ((HRESULT(*)(Object *, uintptr_t, uintptr_t, uintptr_t *, uintptr_t *, uint32_t *, uint32_t, uint32_t *,
                        uintptr_t *))info->vtable[38])(info, function, 0, class, module, token, MOST_ARGS, args, arg);
}

__attribute__((visibility("default"))) uintptr_t function_info(Object *info, const uintptr_t *functions, size_t count) {
    uintptr_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uintptr_t class = 0, module = 0;
        uint32_t token = 0, args = 0;
        if (ask_function(info, functions[i], &class, &module, &token, &args) >= 0) sum += class + module + token + args;
    }
    return sum;
}

__attribute__((visibility("default"))) uintptr_t class_from_object(Object *info, const uintptr_t *objects, size_t count) {
    uintptr_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uintptr_t class = 0;
        if (((HRESULT(*)(Object *, uintptr_t, uintptr_t *))info->vtable[3])(info, objects[i], &class) >= 0) sum += class;
    }
    return sum;
}

/* Everything that the name of a function without parameters, of a class that is neither generic nor nested, is made of. The
 * module's metadata is at hand, as both sides keep it. The name itself is not composed: calls are all that this is. */
__attribute__((visibility("default"))) uintptr_t name_parts(Object *info, Object *import, uintptr_t function) {
    uintptr_t class = 0, module = 0, parent = 0, arg[MOST_ARGS];
    uint32_t token = 0, owner = 0, flags = 0, size = 0, rva = 0, impl = 0, type = 0, args = 0, extends = 0;
    uint32_t name_length = 0, type_length = 0;
    const uint8_t *signature = NULL;
    Char name[ROOM], type_name[ROOM];
    if (ask_function(info, function, &class, &module, &token, &args) < 0) return 0;
    if (((HRESULT(*)(Object *, uint32_t, uint32_t *, Char *, uint32_t, uint32_t *, uint32_t *, const uint8_t **, uint32_t *,
                     uint32_t *, uint32_t *))import->vtable[30])(import, token, &owner, name, ROOM, &name_length, &flags,
                                                                 &signature, &size, &rva, &impl) < 0)
        return 0;
    if (((HRESULT(*)(Object *, uintptr_t, uintptr_t *, uint32_t *, uintptr_t *, uint32_t, uint32_t *,
                     uintptr_t *))info->vtable[41])(info, class, &module, &type, &parent, MOST_ARGS, &args, arg) < 0)
        return 0;
    if (((HRESULT(*)(Object *, uint32_t, Char *, uint32_t, uint32_t *, uint32_t *, uint32_t *))import->vtable[12])(
            import, type, type_name, ROOM, &type_length, &flags, &extends) < 0)
        return 0;
    /* Both counts include the NUL; `Type.Method()` is as long as both with the parentheses less one. */
    return (uintptr_t)name_length + type_length + 1;
}
