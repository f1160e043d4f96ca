// Ends while other threads are busy: they allocate and throw until the process is gone.
//
//     Abandon [THREADS = 4] [MILLISECONDS = 50]
using System;
using System.Threading;

static class Abandon
{
    static readonly object[] last = new object[64];

    static int Main(string[] args)
    {
        int threads = args.Length > 0 ? int.Parse(args[0]) : 4, milliseconds = args.Length > 1 ? int.Parse(args[1]) : 50;
        for (int i = 0; i < threads; i++)
        {
            int number = i;
            new Thread(() => Work(number)) { IsBackground = true }.Start();
        }
        Thread.Sleep(milliseconds);
        Console.WriteLine("abandoned {0} threads", threads);
        return 3;
    }

    static void Work(int number)
    {
        while (true)
        {
            last[number % last.Length] = new byte[16 + number];
            try { if (number % 2 == 0) throw new InvalidOperationException(); }
            catch (InvalidOperationException) { }
        }
    }
}
