// One thread works all the time, and threads of the pool rest: they have worked once, and wait for more.
//
//     Resting MILLISECONDS [THREADS = 32]
//
// Each ten seconds the pool gets so many short pieces of work, because its threads end after twenty without any. Says
// "ready" when all its threads have worked.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;

static class Resting
{
    static long sum;

    static int Main(string[] args)
    {
        int milliseconds = int.Parse(args[0]), count = args.Length > 1 ? int.Parse(args[1]) : 32;
        int workers, ports;
        ThreadPool.GetMinThreads(out workers, out ports);
        ThreadPool.SetMinThreads(count, ports);
        Wave(count);
        Console.WriteLine("ready");
        Console.Out.Flush();
        Stopwatch watch = Stopwatch.StartNew();
        long wave = 10000;
        while (watch.ElapsedMilliseconds < milliseconds)
        {
            sum += Works(1000000);
            if (watch.ElapsedMilliseconds < wave) continue;
            wave = watch.ElapsedMilliseconds + 10000;
            Wave(count);
        }
        return sum == 42 ? 1 : 0;
    }

    // Each piece of work waits for all others, so that no thread does two.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Wave(int count)
    {
        CountdownEvent all = new CountdownEvent(count);
        for (int i = 0; i < count; i++)
        {
            ThreadPool.UnsafeQueueUserWorkItem(_ =>
            {
                all.Signal();
                all.Wait();
            }, null);
        }
        all.Wait();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Works(int turns)
    {
        long value = turns;
        for (int i = 0; i < turns; i++) value = value * 6364136223846793005 + 1442695040888963407;
        return value;
    }
}
