// Makes a known number of calls, of which some end in exceptions.
//
//     Balance [ROUNDS = 100000] [THREADS = 2]
//
// On each thread and in each round: one Step, which calls eight times Leaf; and in every thousandth one Catcher, three times
// Middle, which an exception leaves, and one Thrower, which throws it.
using System;
using System.Runtime.CompilerServices;
using System.Threading;

static class Balance
{
    static int caught, sum;

    static int Main(string[] args)
    {
        int rounds = args.Length > 0 ? int.Parse(args[0]) : 100000;
        Thread[] threads = new Thread[args.Length > 1 ? int.Parse(args[1]) : 2];
        for (int i = 0; i < threads.Length; i++)
        {
            threads[i] = new Thread(() => Interlocked.Add(ref sum, Known.Rounds(rounds)));
            threads[i].Start();
        }
        foreach (Thread thread in threads) thread.Join();
        Console.WriteLine("sum {0} caught {1}", sum, caught);
        return 0;
    }

    public static void Caught() { Interlocked.Increment(ref caught); }
}

static class Known
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Rounds(int rounds)
    {
        int sum = 0;
        for (int i = 0; i < rounds; i++)
        {
            sum += Step(i);
            if (i % 1000 == 999) sum += Catcher(i);
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Step(int i) { return Leaf(i) + Leaf(i + 1) + Leaf(i + 2) + Leaf(i + 3) + Leaf(i + 4) + Leaf(i + 5) + Leaf(i + 6) + Leaf(i + 7); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Leaf(int i) { return i & 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Catcher(int i)
    {
        try { return Middle(i, 2); }
        catch (InvalidOperationException) { Balance.Caught(); return 7; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Middle(int i, int depth)
    {
        try { return depth == 0 ? Thrower(i) : Middle(i, depth - 1); }
        finally { if (depth == 1) i++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Thrower(int i) { if (i >= 0) throw new InvalidOperationException(); return i; }
}
