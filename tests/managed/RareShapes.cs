// Calls the methods of Rare.il, which C# cannot express, again and again on several threads, while a profiler changes what it likes.
// Each has to return what it has returned at first. Beside them a thread collects.
//
//     RareShapes [SECONDS = 2] [THREADS = 3] [NAME]: only the shape of this name
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Reflection;
using System.Threading;

static class RareShapes
{
    const int Numbers = 32;
    static volatile bool isOver;
    static long wrong, sum;
    static Func<int, long>[] all;
    static long[,] expected;

    static void Work(int seed)
    {
        var random = new Random(seed);
        while (!isOver)
        {
            int which = random.Next(all.Length);
            for (int i = 0; i < 64 && !isOver; i++)
            {
                int n = random.Next(Numbers);
                long value;
                try { value = all[which](n); }
                catch (Exception e) { Console.Error.WriteLine("Rare: {0} of {1}: {2}", all[which].Method.Name, n, e); Interlocked.Increment(ref wrong); continue; }
                if (value == expected[which, n]) continue;
                if (Interlocked.Increment(ref wrong) < 10) Console.Error.WriteLine("Rare: {0} of {1}: {2}, not {3}", all[which].Method.Name, n, value, expected[which, n]);
            }
        }
    }

    static int Main(string[] args)
    {
        double seconds = args.Length > 0 ? double.Parse(args[0]) : 2;
        int threads = args.Length > 1 ? int.Parse(args[1]) : 3;
        string only = args.Length > 2 ? args[2] : null;
        Assembly rare = Assembly.LoadFrom(Path.Combine(AppDomain.CurrentDomain.BaseDirectory, "Rare.dll"));
        var found = new List<Func<int, long>>();
        foreach (MethodInfo method in rare.GetType("Rare").GetMethods(BindingFlags.Static | BindingFlags.Public))
            if (only == null || method.Name == only) found.Add((Func<int, long>)Delegate.CreateDelegate(typeof(Func<int, long>), method));
        all = found.ToArray();
        expected = new long[all.Length, Numbers];
        for (int which = 0; which < all.Length; which++)
            for (int n = 0; n < Numbers; n++)
            {
                expected[which, n] = all[which](n);
                sum = unchecked(sum * 31 + expected[which, n]);
            }
        var started = new List<Thread>();
        for (int i = 0; i < threads; i++) { int seed = i; started.Add(new Thread(() => Work(seed))); }
        started.Add(new Thread(() => { while (!isOver) { GC.Collect(0); Thread.Sleep(1); GC.Collect(); Thread.Sleep(2); } }));
        foreach (Thread thread in started) thread.Start();
        var watch = Stopwatch.StartNew();
        while (watch.Elapsed.TotalSeconds < seconds) Thread.Sleep(5);
        isOver = true;
        foreach (Thread thread in started) thread.Join();
        Console.WriteLine("{0} shapes, {1}, {2} wrong", all.Length, sum, wrong);
        return 0;
    }
}
