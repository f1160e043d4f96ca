/*
 * Runs dotnet.exe's work in a process whose memory lies where Windows would put it, for the Wine prefix that tests run in:
 *
 *     corprof-dotnet.exe ROOT\dotnet.exe ARGUMENTS
 *
 * A 64-bit process on Windows has libraries and data far above the lowest 2 GB. Wine fills these first. There the compiler of
 * .NET meets addresses that it can reach in two ways, which it does not expect: it gives up, and compiles
 * each method that uses such data, a static variable say, once more without optimizing it. Nothing is inlined into it then,
 * and its variables live to its end. So these addresses are reserved before the runtime is loaded.
 *
 * The rest is what dotnet.exe does itself: load hostfxr.dll from beside it, and hand everything over.
 */
#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include <stdio.h>

/* What Wine gives begins at a multiple of this. */
#define GRAIN 0x10000

/* Reserves what is free between two addresses, piece by piece: not all that Wine calls free can be had. */
static void reserve(ULONG64 from, ULONG64 to, ULONG64 piece)
{
    for (ULONG64 at = from; at < to; at += piece) {
        if (!VirtualAlloc((void *)at, piece, MEM_RESERVE, PAGE_NOACCESS) && piece > GRAIN)
            reserve(at, at + piece, GRAIN);
    }
}

typedef int hostfxr_main(int count, const WCHAR **arguments, const WCHAR *host, const WCHAR *root, const WCHAR *app);

int wmain(int count, const WCHAR **arguments)
{
    WCHAR root[MAX_PATH], path[2 * MAX_PATH], app[2 * MAX_PATH], *end;
    WIN32_FIND_DATAW found;
    HANDLE search;
    HMODULE library;
    hostfxr_main *run = NULL;

    reserve(GRAIN, 16 * GRAIN, GRAIN);
    reserve(16 * GRAIN, 0x80000000, 16 * GRAIN);
    if (count < 2 || lstrlenW(arguments[1]) >= MAX_PATH || !(end = wcsrchr(lstrcpyW(root, arguments[1]), L'\\'))) {
        fprintf(stderr, "usage: corprof-dotnet.exe ROOT\\dotnet.exe ARGUMENTS\n");
        return 1;
    }
    *end = 0;
    /* The pinned runtimes have one version of it each. */
    wsprintfW(path, L"%s\\host\\fxr\\*", root);
    search = FindFirstFileW(path, &found);
    if (search != INVALID_HANDLE_VALUE) {
        while (found.cFileName[0] == L'.' && FindNextFileW(search, &found))
            ;
        FindClose(search);
        wsprintfW(path, L"%s\\host\\fxr\\%s\\hostfxr.dll", root, found.cFileName);
        wsprintfW(app, L"%s\\dotnet.dll", root);
        library = LoadLibraryW(path);
        if (library)
            run = (hostfxr_main *)(void *)GetProcAddress(library, "hostfxr_main_startupinfo");
    }
    if (!run) {
        fprintf(stderr, "corprof-dotnet.exe: cannot load %ls (error %lu)\n", path, GetLastError());
        return 1;
    }
    return run(count - 1, arguments + 1, arguments[1], root, app);
}
