// Starts threads, four at a time, each of which uses more and more thread-static fields.
//
//     Slots [THREADS = 100]
using System;
using System.Runtime.CompilerServices;
using System.Threading;

class Wrap<T> { }

static class Slot<T>
{
    [ThreadStatic] public static object Value;
    [ThreadStatic] public static long Number;
}

class First
{
    [ThreadStatic] public static object Value;
    [ThreadStatic] public static long Number;
}

class Last
{
    [ThreadStatic] public static object Value;
    [ThreadStatic] public static long Number;
}

static class Slots
{
    const int AtATime = 4;
    static long sum;

    static int Main(string[] args)
    {
        int threads = args.Length > 0 ? int.Parse(args[0]) : 100;
        for (int started = 0; started < threads; started += AtATime)
        {
            Thread[] alive = new Thread[AtATime];
            for (int i = 0; i < alive.Length; i++)
            {
                alive[i] = new Thread(Work);
                alive[i].Start();
            }
            foreach (Thread thread in alive) thread.Join();
        }
        Console.WriteLine("sum={0}", sum);
        return 0;
    }

    static void Work()
    {
        First.Number = 1;
        First.Value = "first";
        Touch<int>(40);
        Touch<long>(40);
        Touch<string>(40);
        Touch<byte>(40);
        Last.Number = First.Number;
        Last.Value = First.Value;
        Interlocked.Add(ref sum, Last.Number);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Touch<T>(int depth)
    {
        Slot<T>.Value = "some";
        Slot<T>.Number += depth;
        if (depth > 0) Touch<Wrap<T>>(depth - 1);
    }
}
