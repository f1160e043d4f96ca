/*
 * bcryptprimitives.dll for the Wine prefix that tests run in, where Wine (before 9.0) has none. It does three things that
 * Windows needs nobody to do. Nothing of corprof is in it, and none of it runs on Windows.
 *
 * 1. ProcessPrng, from which Rust's standard library takes its random numbers. Without it no profiler written in Rust is
 *    loaded: the runtime does not even say why. This one hands the request on to advapi32, which asks the same generator
 *    under an older name.
 *
 * 2. It mends Wine's list of exception frames. While Wine calls a handler, it keeps a frame on the stack and in a list that
 *    begins in the thread's environment block. The runtime leaves a handler by setting the registers themselves, not
 *    by RtlRestoreContext, so Wine does not learn that the frame is gone, and at the next exception it calls whatever lies
 *    there by then: the second exception of any program hangs it or crashes it. So before each exception is dispatched,
 *    and before the runtime unwinds, frames that are no longer on the stack are taken out of the list; and before it does call
 *    RtlRestoreContext, which goes through the list, at the end of an exception or of a collection for which it has stopped the
 *    thread.
 *    (Windows itself, and later Wines, have no such list on x64.)
 *
 * 3. It completes what GetThreadContext tells the runtime of a stopped thread. Windows says in a flag that the registers are
 *    told as they are, and in another that the thread is inside of the system, where they are not. Wine 8 gives the right
 *    registers and neither flag. Without the first, the runtime takes the registers for unsafe: a thread that runs managed code
 *    is neither stopped for a collection, nor for SuspendRuntime, nor walked, before it comes to a safepoint of its own accord.
 *    (Later Wines set them.)
 */
#define _WIN32_WINNT 0x0A00
#include <windows.h>

/* RtlGenRandom, under the name that advapi32 exports. */
BOOLEAN WINAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
    while (length > 0) {
        ULONG part = length < MAXLONG ? (ULONG)length : MAXLONG;
        if (!SystemFunction036(buffer, part))
            return FALSE;
        buffer += part;
        length -= part;
    }
    return TRUE;
}

typedef struct frame {
    struct frame *outer;
    void *handler;
} frame;

#define END ((frame *)~(ULONG_PTR)0)
#define MOST_FRAMES 64
#define MOST_STEPS 4096

/* Frames by address, which is from the inner to the outer ones, and the handlers that they had; and whether they were found
 * in the list just now, not only before. */
typedef struct {
    unsigned count;
    frame *frames[MOST_FRAMES];
    void *handlers[MOST_FRAMES];
    BOOL are_listed[MOST_FRAMES];
} frames;

/* Holds a thread's frames as they were last found to be right: a lost one leads nowhere. */
static DWORD slot = TLS_OUT_OF_INDEXES;

static void add(frames *all, frame *one, BOOL is_listed)
{
    unsigned place = 0;
    while (place < all->count && all->frames[place] < one)
        place++;
    if (all->count == MOST_FRAMES || (place < all->count && all->frames[place] == one))
        return;
    for (unsigned i = all->count++; i > place; i--) {
        all->frames[i] = all->frames[i - 1];
        all->handlers[i] = all->handlers[i - 1];
        all->are_listed[i] = all->are_listed[i - 1];
    }
    all->frames[place] = one;
    all->handlers[place] = one->handler;
    all->are_listed[place] = is_listed;
}

static ULONG64 image_of(ULONG64 address)
{
    ULONG64 base = 0;
    RtlLookupFunctionEntry(address, &base, NULL);
    return base;
}

/* Whether a function of `image`, a library of Wine's own, begins at `address`: nobody else puts frames into the list. What is
 * left of other things on a stack is full of addresses in the middle of functions, and of functions of other libraries. One
 * that calls nobody has no entry. */
static BOOL is_function(ULONG64 address, ULONG64 image)
{
    static const char mark[] = "Wine builtin DLL";
    ULONG64 base = 0;
    RUNTIME_FUNCTION *function = RtlLookupFunctionEntry(address, &base, NULL);
    return image && base == image && !memcmp((IMAGE_DOS_HEADER *)image + 1, mark, sizeof mark - 1) &&
           (!function || base + function->BeginAddress == address);
}

/* Makes `context` that of the caller. */
static BOOL step(CONTEXT *context)
{
    ULONG64 base, establisher, before = context->Rsp;
    void *data;
    RUNTIME_FUNCTION *function = RtlLookupFunctionEntry(context->Rip, &base, NULL);
    if (function) {
        RtlVirtualUnwind(UNW_FLAG_NHANDLER, base, context->Rip, function, context, &data, &establisher, NULL);
    } else {
        context->Rip = *(ULONG64 *)context->Rsp;
        context->Rsp += 8;
    }
    return context->Rsp > before;
}

/* Takes out of the calling thread's list what is not in a frame of its stack, which begins at `from`. */
static void mend(const CONTEXT *from)
{
    NT_TIB *tib = (NT_TIB *)NtCurrentTeb();
    frames *known = TlsGetValue(slot), candidates, live;
    ULONG64 lowest = from->Rsp, highest = (ULONG64)tib->StackBase;
    CONTEXT context;
    unsigned next = 0;

    if (lowest < (ULONG64)tib->StackLimit || lowest >= highest)
        return;
    if ((frame *)tib->ExceptionList == END) {
        if (known)
            known->count = 0;
        return;
    }
    candidates.count = live.count = 0;
    for (frame *f = (frame *)tib->ExceptionList; candidates.count < MOST_FRAMES; f = f->outer) {
        if ((ULONG64)f < lowest || (ULONG64)f > highest - sizeof *f || ((ULONG64)f & 7))
            break;
        if (candidates.count && f <= candidates.frames[candidates.count - 1])
            break;
        add(&candidates, f, TRUE);
    }
    for (unsigned i = 0; known && i < known->count; i++) {
        if ((ULONG64)known->frames[i] >= lowest && known->frames[i]->handler == known->handlers[i])
            add(&candidates, known->frames[i], FALSE);
    }
    context = *from;
    for (unsigned i = 0; i < MOST_STEPS && next < candidates.count; i++) {
        ULONG64 image = image_of(context.Rip);
        BOOL is_listed = FALSE;
        if (!step(&context) || context.Rsp > highest - 8)
            break;
        /* A frame is the work of the function that it lies in, and so is its handler. Where there is one of the list, those
         * from before are of an earlier call. */
        for (unsigned i = next; i < candidates.count && (ULONG64)candidates.frames[i] < context.Rsp; i++)
            is_listed |= candidates.are_listed[i] && is_function((ULONG64)candidates.frames[i]->handler, image);
        for (; next < candidates.count && (ULONG64)candidates.frames[next] < context.Rsp; next++) {
            frame *f = candidates.frames[next];
            if ((candidates.are_listed[next] || !is_listed) && is_function((ULONG64)f->handler, image))
                add(&live, f, TRUE);
        }
    }
    for (unsigned i = 0; i < live.count; i++)
        live.frames[i]->outer = i + 1 < live.count ? live.frames[i + 1] : END;
    tib->ExceptionList = (void *)(live.count ? live.frames[0] : END);
    if (!known) {
        known = HeapAlloc(GetProcessHeap(), 0, sizeof *known);
        TlsSetValue(slot, known);
    }
    if (known)
        *known = live;
}

static VOID WINAPI unwind_ex(PVOID frame, PVOID ip, PEXCEPTION_RECORD record, PVOID value, PCONTEXT context,
                             PUNWIND_HISTORY_TABLE history)
{
    CONTEXT here;
    RtlCaptureContext(&here);
    mend(&here);
    RtlUnwindEx(frame, ip, record, value, context, history);
}

static VOID WINAPI unwind(PVOID frame, PVOID ip, PEXCEPTION_RECORD record, PVOID value)
{
    CONTEXT here;
    RtlCaptureContext(&here);
    mend(&here);
    RtlUnwind(frame, ip, record, value);
}

static VOID(WINAPI *real_restore_context)(PCONTEXT context, PEXCEPTION_RECORD record);

static VOID WINAPI restore_context(PCONTEXT context, PEXCEPTION_RECORD record)
{
    CONTEXT here;
    RtlCaptureContext(&here);
    mend(&here);
    real_restore_context(context, record);
}

/* Where all calls of the system end, and the code that Wine has a thread run when an exception begins. */
static ULONG64 ntdll, ntdll_end;

static BOOL WINAPI get_thread_context(HANDLE thread, CONTEXT *context)
{
    BOOL is_asked = (context->ContextFlags & CONTEXT_EXCEPTION_REQUEST) != 0;

    if (!GetThreadContext(thread, context))
        return FALSE;
    if (is_asked) {
        context->ContextFlags |= CONTEXT_EXCEPTION_REPORTING;
        if (context->Rip >= ntdll && context->Rip < ntdll_end)
            context->ContextFlags |= CONTEXT_SERVICE_ACTIVE;
    }
    return TRUE;
}

static IMAGE_OPTIONAL_HEADER *header_of(BYTE *image)
{
    return &((IMAGE_NT_HEADERS *)(image + ((IMAGE_DOS_HEADER *)image)->e_lfanew))->OptionalHeader;
}

/* Has `image` call `by` where it imports `real`. */
static void replace(BYTE *image, void *real, void *by)
{
    IMAGE_DATA_DIRECTORY imports = header_of(image)->DataDirectory[IMAGE_DIRECTORY_ENTRY_IMPORT];
    IMAGE_IMPORT_DESCRIPTOR *from = (IMAGE_IMPORT_DESCRIPTOR *)(image + imports.VirtualAddress);
    DWORD was;

    for (; from->FirstThunk; from++) {
        for (void **entry = (void **)(image + from->FirstThunk); *entry; entry++) {
            if (*entry == real && VirtualProtect(entry, sizeof *entry, PAGE_READWRITE, &was)) {
                *entry = by;
                VirtualProtect(entry, sizeof *entry, was, &was);
            }
        }
    }
}

static LONG CALLBACK before_dispatch(EXCEPTION_POINTERS *exception)
{
    mend(exception->ContextRecord);
    return EXCEPTION_CONTINUE_SEARCH;
}

BOOL WINAPI DllMain(HINSTANCE self, DWORD reason, LPVOID reserved)
{
    (void)reserved;
    if (reason == DLL_PROCESS_ATTACH) {
        HMODULE kernel = GetModuleHandleW(L"kernel32.dll"), runtime = GetModuleHandleW(L"coreclr.dll"), kept;
        HMODULE system = GetModuleHandleW(L"ntdll.dll");
        slot = TlsAlloc();
        if (!kernel || !runtime || !system || slot == TLS_OUT_OF_INDEXES)
            return TRUE;
        real_restore_context = (void *)GetProcAddress(kernel, "RtlRestoreContext");
        ntdll = (ULONG64)system;
        ntdll_end = ntdll + header_of((BYTE *)system)->SizeOfImage;
        GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN, (void *)self, &kept);
        AddVectoredExceptionHandler(TRUE, before_dispatch);
        replace((BYTE *)runtime, (void *)GetProcAddress(kernel, "RtlUnwindEx"), (void *)unwind_ex);
        replace((BYTE *)runtime, (void *)GetProcAddress(kernel, "RtlUnwind"), (void *)unwind);
        replace((BYTE *)runtime, (void *)real_restore_context, (void *)restore_context);
        replace((BYTE *)runtime, (void *)GetProcAddress(kernel, "GetThreadContext"), (void *)get_thread_context);
    } else if (reason == DLL_THREAD_DETACH && slot != TLS_OUT_OF_INDEXES) {
        HeapFree(GetProcessHeap(), 0, TlsGetValue(slot));
    }
    return TRUE;
}
