/* Loads a profiler library as a runtime does, and asks it for the factory of each CLSID: loader LIBRARY {CLSID}... */
#include <dlfcn.h>
#include <stdio.h>

typedef struct { unsigned a; unsigned short b, c; unsigned char d[8]; } guid;
typedef struct unknown unknown;
struct unknown {
    struct { int (*query)(unknown *, const guid *, void **); unsigned (*add_ref)(unknown *); unsigned (*release)(unknown *); } *calls;
};
typedef int (*get_class_object)(const guid *, const guid *, void **);

static int parse(const char *text, guid *to) {
    unsigned b, c, d[8];
    if (sscanf(text, "{%8x-%4x-%4x-%2x%2x-%2x%2x%2x%2x%2x%2x}", &to->a, &b, &c, d, d + 1, d + 2, d + 3, d + 4, d + 5, d + 6, d + 7) != 11)
        return 0;
    to->b = b, to->c = c;
    for (int i = 0; i < 8; i++) to->d[i] = d[i];
    return 1;
}

int main(int count, char **words) {
    static const guid class_factory = {1, 0, 0, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};
    void *library = count > 1 ? dlopen(words[1], RTLD_NOW) : NULL;
    get_class_object get = library ? (get_class_object)dlsym(library, "DllGetClassObject") : NULL;
    if (!get) return fprintf(stderr, "%s\n", dlerror()), 1;
    for (int i = 2; i < count; i++) {
        guid clsid;
        unknown *factory = NULL;
        if (!parse(words[i], &clsid)) return fprintf(stderr, "not a CLSID: %s\n", words[i]), 1;
        int result = get(&clsid, &class_factory, (void **)&factory);
        if (result != 0 || !factory) return fprintf(stderr, "%s: 0x%08x\n", words[i], result), 1;
        factory->calls->release(factory);
    }
    printf("%d factories\n", count - 2);
    return 0;
}
