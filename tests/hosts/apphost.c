// Starts a managed program as its apphost does, the native executable `App` that a build puts beside App.dll: by the host
// resolver's own entry point, with the runtime that DOTNET_ROOT names. For `live/hosts.rs`, as no package brings an apphost.
//
//     APPHOST_HOSTFXR=…/libhostfxr.so DOTNET_ROOT=… ./App [ARGUMENT ...]
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*Start)(int argc, const char **argv, const char *host, const char *dotnet_root, const char *app);

int main(int argc, const char **argv)
{
    char host[PATH_MAX + 1] = {0}, app[PATH_MAX + 8];
    const char *path = getenv("APPHOST_HOSTFXR");
    void *hostfxr = path ? dlopen(path, RTLD_NOW) : NULL;
    Start start = hostfxr ? (Start)dlsym(hostfxr, "hostfxr_main_startupinfo") : NULL;
    if (!start || readlink("/proc/self/exe", host, PATH_MAX) < 0) {
        fprintf(stderr, "apphost: no host resolver in APPHOST_HOSTFXR\n");
        return 99;
    }
    snprintf(app, sizeof app, "%s.dll", host);
    return start(argc, argv, host, getenv("DOTNET_ROOT"), app);
}
