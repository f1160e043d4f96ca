// target: 8.0
// Calls methods with UnmanagedCallersOnly from native code, while another thread collects.
//
//     Unmanaged known|foreign [ROUNDS = 200]
//
// known: the C library's qsort calls them on threads of the runtime's, each call in the middle of a call to native code.
// foreign: threads of the system's begin with them, which the runtime has never seen; a collection runs for every eight.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static unsafe class Unmanaged
{
    const int Elements = 64, Threads = 4;

    [DllImport("libc")]
    static extern void qsort(int* elements, nint count, nint size, delegate* unmanaged<int*, int*, int> compare);

    [DllImport("libc")]
    static extern int pthread_create(out nint thread, nint attributes, delegate* unmanaged<nint, nint> body, nint number);

    [DllImport("libc")]
    static extern int pthread_join(nint thread, nint result);

    static long compared, sum;
    static volatile bool isOver;

    [UnmanagedCallersOnly]
    static int Compare(int* a, int* b)
    {
        Interlocked.Increment(ref compared);
        return Boxed(*a).CompareTo(Boxed(*b));
    }

    [UnmanagedCallersOnly]
    static nint Work(nint number)
    {
        Interlocked.Add(ref sum, (int)Boxed((int)number));
        return number + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static IComparable Boxed(int number) { return number; }

    static void Sort(int rounds)
    {
        int* elements = stackalloc int[Elements];
        for (int round = 0; round < rounds; round++)
        {
            for (int i = 0; i < Elements; i++) elements[i] = (i * 7919 + round) % 1009;
            qsort(elements, Elements, sizeof(int), &Compare);
            for (int i = 1; i < Elements; i++)
                if (elements[i - 1] > elements[i]) throw new InvalidOperationException("not sorted");
        }
    }

    static void Known(int rounds)
    {
        var threads = new Thread[Threads];
        for (int i = 0; i < Threads; i++) (threads[i] = new Thread(() => Sort(rounds))).Start();
        foreach (Thread thread in threads) thread.Join();
    }

    static void Foreign(int rounds)
    {
        for (int started = 0; started < rounds;)
        {
            var threads = new nint[Math.Min(8, rounds - started)];
            int collections = GC.CollectionCount(0);
            for (int i = 0; i < threads.Length; i++) pthread_create(out threads[i], 0, &Work, ++started);
            while (GC.CollectionCount(0) == collections) Thread.Yield();
            foreach (nint thread in threads) pthread_join(thread, 0);
        }
    }

    static int Main(string[] args)
    {
        int rounds = args.Length > 1 ? int.Parse(args[1]) : 200;
        var collects = new Thread(() => { while (!isOver) { GC.Collect(0); Thread.Yield(); } });
        collects.Start();
        if (args[0] == "known") Known(rounds); else Foreign(rounds);
        isOver = true;
        collects.Join();
        Console.WriteLine("compared={0} sum={1}", compared, sum);
        return 0;
    }
}
