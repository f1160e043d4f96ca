// target: 8.0
// Collections that wait for a thread: it clears memory in native code that was declared SuppressGCTransition, so the runtime cannot
// stop it there. A sleep would not do: it ends when the runtime's signal arrives. For the example `pauses`.
//
//     Pauses [COLLECTIONS = 20] [MEGABYTES = 128]

using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

int collections = args.Length > 0 ? int.Parse(args[0]) : 20, megabytes = args.Length > 1 ? int.Parse(args[1]) : 128;
var slow = new Thread(() => Slow.Delays(megabytes)) { Name = "slow" };
slow.Start();
for (int i = 0; i < collections; i++)
    Cache.Trims();
Slow.IsOver = true;
slow.Join();
Console.WriteLine($"collections={collections}");

static class Cache
{
    // Collects while the other thread clears its memory.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Trims()
    {
        int before = Slow.Calls;
        SpinWait.SpinUntil(() => Slow.Calls > before);
        GC.Collect(0);
    }
}

static unsafe class Slow
{
    // Found at run time: the compiler of the runtime would look for the function of the other system as well.
    static readonly delegate* unmanaged[SuppressGCTransition]<void*, int, nuint, void*> memset =
        (delegate* unmanaged[SuppressGCTransition]<void*, int, nuint, void*>)NativeLibrary.GetExport(
            NativeLibrary.Load(OperatingSystem.IsWindows() ? "msvcrt" : "libc.so.6"), "memset");
    public static volatile int Calls;
    public static volatile bool IsOver;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Delays(int megabytes)
    {
        nuint size = (nuint)megabytes << 20;
        void* memory = NativeMemory.AllocZeroed(size);
        while (!IsOver)
        {
            Calls++;
            memset(memory, Calls, size);
            Thread.Sleep(1);
        }
        NativeMemory.Free(memory);
    }
}
