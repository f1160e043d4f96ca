// A pool of threads that wait for work and do it in short pieces, in known shares: 60 %, 30 % and 10 % of the time.
//
//     Pool [MILLISECONDS = 1000] [THREADS = 8] [TURNS = 20000] [ready]
//
// A piece is ten calls of the same method, of TURNS turns, in some random order: six come by Sixty, three by Thirty and one by
// Ten; then its thread waits for the next one. As many pieces are under way as there are threads, so that a full machine has
// no thread that is always at work. With `ready` it says so when its threads have been started.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;

static class Pool
{
    // Serves as a queue.
    static readonly List<int> pieces = new List<int>();
    static readonly object gate = new object();
    static bool isOver;
    static int done, turns;
    static long sum;

    static int Main(string[] args)
    {
        int milliseconds = args.Length > 0 ? int.Parse(args[0]) : 1000, count = args.Length > 1 ? int.Parse(args[1]) : 8;
        turns = args.Length > 2 ? int.Parse(args[2]) : 20000;
        Thread[] threads = new Thread[count];
        for (int i = 0; i < count; i++)
        {
            threads[i] = new Thread(Serves) { Name = "pool " + i };
            threads[i].Start();
        }
        Thread[] clients = new Thread[count];
        for (int i = 0; i < count; i++)
        {
            int seed = i;
            clients[i] = new Thread(() => Asks(seed, milliseconds)) { Name = "client " + i };
            clients[i].Start();
        }
        if (args.Length > 3) Console.WriteLine(args[3]);
        foreach (Thread client in clients) client.Join();
        lock (gate)
        {
            isOver = true;
            Monitor.PulseAll(gate);
        }
        foreach (Thread thread in threads) thread.Join();
        Console.WriteLine("done {0}", done > 0 && sum != 42);
        return done > 0 ? 0 : 1;
    }

    // Puts a piece into the queue, and rests for some milliseconds.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Asks(int seed, int milliseconds)
    {
        Stopwatch watch = Stopwatch.StartNew();
        Random random = new Random(seed);
        while (watch.ElapsedMilliseconds < milliseconds)
        {
            lock (gate)
            {
                pieces.Add(random.Next());
                Monitor.Pulse(gate);
            }
            Thread.Sleep(random.Next(1, 4));
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Serves()
    {
        for (;;)
        {
            int piece;
            lock (gate)
            {
                while (pieces.Count == 0)
                {
                    if (isOver) return;
                    Monitor.Wait(gate);
                }
                piece = pieces[0];
                pieces.RemoveAt(0);
            }
            long result = Works(piece);
            Interlocked.Add(ref sum, result);
            Interlocked.Increment(ref done);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Works(int seed)
    {
        Random random = new Random(seed);
        int sixty = 6, thirty = 3, ten = 1;
        long result = 0;
        for (int left = 10; left > 0; left--)
        {
            int drawn = random.Next(left);
            if (drawn < sixty) { result += Sixty(); sixty--; }
            else if (drawn < sixty + thirty) { result += Thirty(); thirty--; }
            else { result += Ten(); ten--; }
        }
        return result;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Sixty() { return Burn(turns) + 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Thirty() { return Burn(turns) + 2; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Ten() { return Burn(turns) + 3; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Burn(int turns)
    {
        long value = turns;
        for (int i = 0; i < turns; i++) value = value * 6364136223846793005 + 1442695040888963407;
        return value;
    }
}
