// Many threads, each asleep at the bottom of as many calls as wanted; the main thread waits for them.
//
//     Deep [THREADS = 50] [DEPTH = 40] [MILLISECONDS = 1000]
using System;
using System.Runtime.CompilerServices;
using System.Threading;

static class Deep
{
    static readonly ManualResetEvent over = new ManualResetEvent(false);
    static int reached;

    static int Main(string[] args)
    {
        int count = args.Length > 0 ? int.Parse(args[0]) : 50, depth = args.Length > 1 ? int.Parse(args[1]) : 40;
        int milliseconds = args.Length > 2 ? int.Parse(args[2]) : 1000;
        Thread[] threads = new Thread[count];
        for (int i = 0; i < count; i++)
        {
            threads[i] = new Thread(() => Down(depth)) { Name = "deep " + i };
            threads[i].Start();
        }
        while (Volatile.Read(ref reached) < count) Thread.Sleep(1);
        Thread.Sleep(milliseconds);
        over.Set();
        foreach (Thread thread in threads) thread.Join();
        Console.WriteLine("reached {0}", reached);
        return reached == count ? 0 : 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Down(int depth)
    {
        if (depth > 1) return Down(depth - 1) + 1;
        Interlocked.Increment(ref reached);
        over.WaitOne();
        return 1;
    }
}
