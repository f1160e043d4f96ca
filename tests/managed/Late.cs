// Ends while other threads run methods that have not run before: they are compiled until the process is gone.
//
//     Late [THREADS = 2] [MILLISECONDS = 50]
using System;
using System.Threading;

struct Zero<T> { public T Value; }
struct One<T> { public T Value; }

static class Late
{
    static volatile int depth;

    static int Main(string[] args)
    {
        int threads = args.Length > 0 ? int.Parse(args[0]) : 2, milliseconds = args.Length > 1 ? int.Parse(args[1]) : 50;
        for (int i = 0; i < threads; i++)
        {
            int number = i;
            new Thread(() => Work(number, threads)) { IsBackground = true }.Start();
        }
        Thread.Sleep(milliseconds);
        Console.WriteLine("abandoned {0} threads", threads);
        return 3;
    }

    static void Work(int first, int step)
    {
        for (int bits = first; ; bits += step) Next<int>(bits, 12);
    }

    // Each pattern of bits is a type of its own, and each type has code of its own.
    static void Next<T>(int bits, int left)
    {
        if (left == 0) depth++;
        else if ((bits & 1) == 0) Next<Zero<T>>(bits >> 1, left - 1);
        else Next<One<T>>(bits >> 1, left - 1);
    }
}
