// Has named threads stand in known methods, and says `ready` once they do, until its input ends.
//
//     Standing [calm]
//
// waiter: in Waits, for an event. busy: in Spins, and not with `calm`. first and second: in First and Second, each for the lock that the other has.
// napper: in Naps, which sleeps for some milliseconds again and again.
// sorter: in Compare, which native code has called, which Sorts has called.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Standing
{
    delegate int Comparer(IntPtr a, IntPtr b);

    [DllImport("libc")]
    static extern void qsort(int[] items, IntPtr count, IntPtr size, Comparer comparer);

    static readonly ManualResetEvent never = new ManualResetEvent(false);
    static readonly object one = new object(), other = new object();
    static volatile bool spins, hasOne, hasOther, compares;

    static int Main(string[] args)
    {
        Thread waiter = Start("waiter", Waits), first = Start("first", First), second = Start("second", Second);
        Thread sorter = Start("sorter", Sorts);
        bool isCalm = args.Length > 0;
        if (!isCalm) Start("busy", Spins);
        Start("napper", Naps);
        while (!(spins || isCalm) || !hasOne || !hasOther || !compares) Thread.Yield();
        foreach (Thread thread in new[] { waiter, first, second, sorter })
            while ((thread.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Yield();
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
        return 0;
    }

    static Thread Start(string name, ThreadStart start)
    {
        Thread thread = new Thread(start) { Name = name, IsBackground = true };
        thread.Start();
        return thread;
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static void Waits() { never.WaitOne(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Spins() { spins = true; while (spins) { } }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Naps() { while (true) Thread.Sleep(5); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void First() { lock (one) { hasOne = true; Awaits(() => hasOther); lock (other) { } } }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Second() { lock (other) { hasOther = true; Awaits(() => hasOne); lock (one) { } } }

    // A method of its own: if it loops for so long that it is compiled again, the frames of its callers stay as they are.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Awaits(Func<bool> condition) { while (!condition()) Thread.Yield(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Sorts()
    {
        Comparer comparer = Compare;
        qsort(new[] { 2, 1 }, (IntPtr)2, (IntPtr)4, comparer);
        GC.KeepAlive(comparer);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Compare(IntPtr a, IntPtr b) { compares = true; never.WaitOne(); return 0; }
}
