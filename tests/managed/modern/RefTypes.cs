// target: 10.0
// Generic methods for ref structs, whose code has instructions that the compiler takes together only: a value of a ref struct cannot be
// boxed, but `box` with a branch or a test behind it does not box.
//
//     RefTypes [SECONDS = 2] [THREADS = 3]
//
// It prints a sum of what the methods have returned, and how many answers were wrong.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;

interface IMeasured { int Measure(); static abstract int Unit { get; } int Twice() => 2 * Measure(); }

ref struct Window : IMeasured, IDisposable
{
    public Span<int> Items;
    public int Measure() => Items.Length;
    public static int Unit => 3;
    public int Twice() => 5 * Measure();
    public void Dispose() => Items[0]++;
}

struct Plain : IMeasured { public int Value; public int Measure() => Value; public static int Unit => 4; }

sealed class Object_ : IMeasured { public int Measure() => 7; public static int Unit => 5; }

// Called by a profiler.
static class Helper
{
    static int helped;
    internal static void Help() { helped++; }
    internal static void HelpWith(object value) { if (value != null) helped++; }
}

static class RefTypes
{
    static volatile bool isOver;
    static long wrong, sum;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int IsNothing<T>(T value) where T : allows ref struct => value is null ? 1 : 2;
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int IsSomething<T>(T value) where T : allows ref struct { if (value != null) return 1; return 2; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Measured<T>(T value) where T : IMeasured, allows ref struct => value.Measure() * T.Unit;
    [MethodImpl(MethodImplOptions.NoInlining)]
    static T Passed<T>(T value, scoped ref T place) where T : allows ref struct { place = value; return value; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Disposed<T>(T value) where T : IDisposable, allows ref struct { using (value) return 3; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Twice<T>(T value) where T : IMeasured, allows ref struct => value.Twice();

    static long Nothing(int n) => IsNothing(new Span<int>(new int[n + 1])) + IsNothing("text") + IsNothing((string)null) + IsNothing(n) + IsNothing((int?)null) + IsNothing(new Window());
    static long Something(int n) => IsSomething(new Span<int>(new int[n + 1])) + IsSomething("text") + IsSomething((string)null) + IsSomething(n) + IsSomething((int?)null) + IsSomething(new Window());
    static long Measures(int n) => Measured(new Window { Items = new int[n] }) + Measured(new Plain { Value = n }) + Measured(new Object_()) + Twice(new Window { Items = new int[n] });
    static long Passes(int n)
    {
        var window = new Window { Items = new int[n] };
        scoped Window other = default;
        return Passed(window, ref other).Items.Length + other.Items.Length;
    }
    static long Disposes(int n) { int[] all = { n }; return Disposed(new Window { Items = all }) + all[0]; }

    static readonly Func<int, long>[] all = { Nothing, Something, Measures, Passes, Disposes };
    const int Numbers = 32;
    static readonly long[,] expected = new long[all.Length, Numbers];

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
                catch (Exception e) { Console.Error.WriteLine("RefTypes: {0} of {1}: {2}", all[which].Method.Name, n, e); Interlocked.Increment(ref wrong); continue; }
                if (value == expected[which, n]) continue;
                if (Interlocked.Increment(ref wrong) < 10) Console.Error.WriteLine("RefTypes: {0} of {1}: {2}, not {3}", all[which].Method.Name, n, value, expected[which, n]);
            }
        }
    }

    static int Main(string[] args)
    {
        double seconds = args.Length > 0 ? double.Parse(args[0]) : 2;
        int threads = args.Length > 1 ? int.Parse(args[1]) : 3;
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
        Console.WriteLine("{0}, {1} wrong", sum, wrong);
        return 0;
    }
}
