// Creates and ends many threads while it forces many collections of all generations.
//
//     Churn [THREADS = 10000] [COLLECTIONS = 1000]
//
// Eight threads are alive at a time. Each adds its number to a sum, so the checksum proves that all of them ran.
using System;
using System.Threading;

static class Churn
{
    const int AtATime = 8;
    static long sum;

    static int Main(string[] args)
    {
        int threads = args.Length > 0 ? int.Parse(args[0]) : 10000, collections = args.Length > 1 ? int.Parse(args[1]) : 1000;
        int started = 0, forced = 0;
        while (started < threads)
        {
            Thread[] alive = new Thread[Math.Min(AtATime, threads - started)];
            for (int i = 0; i < alive.Length; i++)
            {
                int number = ++started;
                alive[i] = new Thread(() => Work(number));
                alive[i].Start();
            }
            // The collections are spread over the threads' lives: now and then some are running, some not started yet.
            for (; forced < (long)collections * started / threads; forced++) GC.Collect(forced % (GC.MaxGeneration + 1));
            foreach (Thread thread in alive) thread.Join();
        }
        for (; forced < collections; forced++) GC.Collect(forced % (GC.MaxGeneration + 1));

        bool whole = sum == (long)threads * (threads + 1) / 2;
        Console.WriteLine("threads={0} collections={1} checksum={2}", started, forced, sum);
        return whole ? 0 : 1;
    }

    static void Work(int number)
    {
        byte[] garbage = new byte[200 + number % 100];
        garbage[number % garbage.Length] = 1;
        foreach (byte b in garbage) Interlocked.Add(ref sum, b * (long)number);
    }
}
