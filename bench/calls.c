/* Calls into the runtime as a C author makes them: what `cargo xtask bench` measures corprof's forms of the same calls against.
 *
 * tests/profilers/bench_calls.rs loads this library and takes turns with it, inside one callback, so that both sides ask the
 * same about the same. Slot numbers are those of corprof-sys/tests/oracle/vtables.json. Each function repeats its call and
 * returns the sum of the answers, so that no compiler can leave a call out and the other side can check that it got the same.
 *
 *     cc -O2 -shared -fPIC -o libcalls.so calls.c
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* Everything that the name of a function of a class that is neither generic nor nested is made of. The UTF-16 text and the
 * signature are as the runtime gives them. */
typedef struct {
    Char name[ROOM], type[ROOM];
    uint32_t name_length, type_length, signature_size;
    const uint8_t *signature;
} Parts;

/* The four calls that such a name takes, and nothing else. The first has been made by `ask_function`. */
static int ask_parts(Object *info, Object *import, uintptr_t class, uint32_t token, Parts *parts) {
    uintptr_t module = 0, parent = 0, arg[MOST_ARGS];
    uint32_t owner = 0, flags = 0, rva = 0, impl = 0, type = 0, args = 0, extends = 0;
    return ((HRESULT(*)(Object *, uint32_t, uint32_t *, Char *, uint32_t, uint32_t *, uint32_t *, const uint8_t **,
                        uint32_t *, uint32_t *, uint32_t *))import->vtable[30])(
               import, token, &owner, parts->name, ROOM, &parts->name_length, &flags, &parts->signature,
               &parts->signature_size, &rva, &impl) >= 0 &&
           ((HRESULT(*)(Object *, uintptr_t, uintptr_t *, uint32_t *, uintptr_t *, uint32_t, uint32_t *,
                        uintptr_t *))info->vtable[41])(info, class, &module, &type, &parent, MOST_ARGS, &args, arg) >= 0 &&
           ((HRESULT(*)(Object *, uint32_t, Char *, uint32_t, uint32_t *, uint32_t *, uint32_t *))import->vtable[12])(
               import, type, parts->type, ROOM, &parts->type_length, &flags, &extends) >= 0;
}

/* Asks for all that the name is made of, with the module's metadata at hand, and makes no name of it. */
__attribute__((visibility("default"))) uintptr_t name_calls(Object *info, Object *import, uintptr_t function) {
    uintptr_t class = 0, module = 0;
    uint32_t token = 0, args = 0;
    Parts parts;
    if (ask_function(info, function, &class, &module, &token, &args) < 0) return 0;
    if (!ask_parts(info, import, class, token, &parts)) return 0;
    return (uintptr_t)parts.name_length + parts.type_length;
}

/* Names as a profiler in C would keep them: composed once, found again by function. Callbacks come on many threads, so a lock
 * guards the tables; it is not held across a call of the runtime. */
typedef struct Name {
    struct Name *next;
    uintptr_t function;
    size_t length;
    char text[];
} Name;

typedef struct Import {
    struct Import *next;
    uintptr_t module;
    Object *import;
} Import;

#define MODULES 64
#define FEWEST_NAMES 1024
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Import *imports[MODULES];
static Name **names;
static size_t names_size, names_count;

static size_t hash(uintptr_t id) { return (size_t)((uint64_t)id * 0x9e3779b97f4a7c15u >> 32); }

static const Name *find_name(uintptr_t function) {
    const Name *name = names ? names[hash(function) & (names_size - 1)] : NULL;
    while (name && name->function != function) name = name->next;
    return name;
}

static int grow_names(void) {
    size_t size = names ? 2 * names_size : FEWEST_NAMES;
    Name **grown = calloc(size, sizeof *grown);
    if (!grown) return names != NULL;
    for (size_t i = 0; i < names_size; i++) {
        for (Name *name = names[i], *next; name; name = next) {
            Name **bucket = &grown[hash(name->function) & (size - 1)];
            next = name->next;
            name->next = *bucket;
            *bucket = name;
        }
    }
    free(names);
    names = grown;
    names_size = size;
    return 1;
}

static void keep_name(Name *name) {
    pthread_mutex_lock(&lock);
    if ((names_count < names_size || grow_names()) && !find_name(name->function)) {
        Name **bucket = &names[hash(name->function) & (names_size - 1)];
        name->next = *bucket;
        *bucket = name;
        names_count++;
        name = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(name);
}

/* The metadata of a module, from now on. */
__attribute__((visibility("default"))) int keep_import(uintptr_t module, Object *import) {
    Import *kept = malloc(sizeof *kept);
    if (!kept) return 0;
    kept->module = module;
    kept->import = import;
    pthread_mutex_lock(&lock);
    kept->next = imports[hash(module) % MODULES];
    imports[hash(module) % MODULES] = kept;
    pthread_mutex_unlock(&lock);
    return 1;
}

static Object *find_import(uintptr_t module) {
    const Import *kept;
    pthread_mutex_lock(&lock);
    kept = imports[hash(module) % MODULES];
    while (kept && kept->module != module) kept = kept->next;
    pthread_mutex_unlock(&lock);
    return kept ? kept->import : NULL;
}

/* UTF-8 that grows; text that does not fit is left out. */
typedef struct { size_t length; char text[8 * ROOM]; } Text;

static void put(Text *text, const char *piece) {
    size_t length = strlen(piece);
    if (length > sizeof text->text - text->length) return;
    memcpy(text->text + text->length, piece, length);
    text->length += length;
}

/* `length` counts the NUL. */
static void put_utf16(Text *text, const Char *from, uint32_t length) {
    char *to = text->text + text->length;
    uint32_t i, units = length ? length - 1 : 0;
    if (3 * (size_t)units > sizeof text->text - text->length) return;
    for (i = 0; i < units; i++) {
        uint32_t unit = from[i];
        if (unit < 0x80) {
            *to++ = (char)unit;
        } else if (unit < 0x800) {
            *to++ = (char)(0xc0 | unit >> 6);
            *to++ = (char)(0x80 | (unit & 0x3f));
        } else if (unit >= 0xd800 && unit < 0xdc00 && i + 1 < units) {
            unit = 0x10000 + ((unit & 0x3ff) << 10) + (from[++i] & 0x3ff);
            *to++ = (char)(0xf0 | unit >> 18);
            *to++ = (char)(0x80 | (unit >> 12 & 0x3f));
            *to++ = (char)(0x80 | (unit >> 6 & 0x3f));
            *to++ = (char)(0x80 | (unit & 0x3f));
        } else {
            *to++ = (char)(0xe0 | unit >> 12);
            *to++ = (char)(0x80 | (unit >> 6 & 0x3f));
            *to++ = (char)(0x80 | (unit & 0x3f));
        }
    }
    text->length = (size_t)(to - text->text);
}

static const char *const PRIMITIVES[] = {
    [0x01] = "void",   [0x02] = "bool",   [0x03] = "char",    [0x04] = "int8",     [0x05] = "uint8",      [0x06] = "int16",
    [0x07] = "uint16", [0x08] = "int32",  [0x09] = "uint32",  [0x0a] = "int64",    [0x0b] = "uint64",     [0x0c] = "float32",
    [0x0d] = "float64", [0x0e] = "string", [0x16] = "typedref", [0x18] = "native int", [0x19] = "native uint", [0x1c] = "object",
};

/* A type of one of the kinds that need no further call; returns where it ends, or nothing for any other. */
static const uint8_t *put_type(Text *text, const uint8_t *at, const uint8_t *end) {
    const char *behind;
    if (at == end) return NULL;
    if (*at < sizeof PRIMITIVES / sizeof *PRIMITIVES && PRIMITIVES[*at]) {
        if (text) put(text, PRIMITIVES[*at]);
        return at + 1;
    }
    switch (*at) {
    case 0x0f: behind = "*"; break;
    case 0x10: behind = "&"; break;
    case 0x1d: behind = "[]"; break;
    default: return NULL;
    }
    at = put_type(text, at + 1, end);
    if (at && text) put(text, behind);
    return at;
}

/* Calling convention, number of parameters, type of the result, types of the parameters. */
static int put_parameters(Text *text, const uint8_t *at, const uint8_t *end) {
    unsigned i, count;
    if (end - at < 2 || at[0] & 0x10 || at[1] & 0x80) return 0;
    count = at[1];
    at = put_type(NULL, at + 2, end);
    put(text, "(");
    for (i = 0; at && i < count; i++) {
        if (i) put(text, ", ");
        at = put_type(text, at, end);
    }
    put(text, ")");
    return at != NULL;
}

/* The name of a function, `Namespace.Class.Method(int32, string[])`, worked out if it is not known yet. Returns its length,
 * 0 if that failed. */
__attribute__((visibility("default"))) uintptr_t name_of(Object *info, uintptr_t function) {
    uintptr_t class = 0, module = 0, length;
    uint32_t token = 0, args = 0;
    const Name *known;
    Object *import;
    Name *name;
    Parts parts;
    Text text;
    pthread_mutex_lock(&lock);
    known = find_name(function);
    length = known ? known->length : 0;
    pthread_mutex_unlock(&lock);
    if (known) return length;
    if (ask_function(info, function, &class, &module, &token, &args) < 0 || !(import = find_import(module))) return 0;
    if (!ask_parts(info, import, class, token, &parts)) return 0;
    text.length = 0;
    put_utf16(&text, parts.type, parts.type_length);
    put(&text, ".");
    put_utf16(&text, parts.name, parts.name_length);
    if (!put_parameters(&text, parts.signature, parts.signature + parts.signature_size)) return 0;
    name = malloc(sizeof *name + text.length + 1);
    if (!name) return 0;
    name->function = function;
    name->length = length = text.length;
    memcpy(name->text, text.text, text.length);
    name->text[text.length] = 0;
    keep_name(name);
    return length;
}

/* The name itself, if it is known. */
__attribute__((visibility("default"))) const char *known_name(uintptr_t function) {
    const Name *known;
    pthread_mutex_lock(&lock);
    known = find_name(function);
    pthread_mutex_unlock(&lock);
    return known ? known->text : NULL;
}
