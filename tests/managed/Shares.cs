// Works in three chains of calls that are never inlined, in known shares: 60 %, 30 % and 10 % of the time.
//
//     Shares [MILLISECONDS = 1000] [THREADS = 1] [yields]
//
// Every chain ends in the same method, which does the same work in each call, some 20 microseconds; of ten calls six come
// by Sixty, three by Thirty and one by Ten. Another thread waits all the while, in Waits. With "yields" the workers offer their
// processor to each other after each ten calls.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;

static class Shares
{
    static volatile bool isOver;
    static bool yields;
    static long calls;

    static int Main(string[] args)
    {
        int milliseconds = args.Length > 0 ? int.Parse(args[0]) : 1000, threads = args.Length > 1 ? int.Parse(args[1]) : 1;
        yields = args.Length > 2 && args[2] == "yields";
        Thread waiter = new Thread(Waits) { Name = "waiter" };
        waiter.Start();
        Thread[] workers = new Thread[threads];
        for (int i = 0; i < threads; i++)
        {
            workers[i] = new Thread(() => Works(milliseconds)) { Name = "worker " + i };
            workers[i].Start();
        }
        foreach (Thread worker in workers) worker.Join();
        isOver = true;
        waiter.Join();
        Console.WriteLine("done {0}", calls % 10 == 0 && calls > 0);
        return calls % 10 == 0 && calls > 0 ? 0 : 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Waits()
    {
        while (!isOver) Thread.Sleep(20);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Works(int milliseconds)
    {
        Stopwatch watch = Stopwatch.StartNew();
        long sum = 0, done = 0;
        while (watch.ElapsedMilliseconds < milliseconds)
        {
            for (int i = 0; i < 50; i++)
            {
                sum += Sixty(); sum += Thirty(); sum += Sixty(); sum += Ten(); sum += Sixty();
                sum += Thirty(); sum += Sixty(); sum += Sixty(); sum += Thirty(); sum += Sixty();
                done += 10;
                if (yields) Thread.Yield();
            }
        }
        Interlocked.Add(ref calls, sum == 42 ? 1 : done);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Sixty() { return Burn(20000) + 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Thirty() { return Burn(20000) + 2; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Ten() { return Burn(20000) + 3; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Burn(int turns)
    {
        long value = turns;
        for (int i = 0; i < turns; i++) value = value * 6364136223846793005 + 1442695040888963407;
        return value;
    }
}
