// target: 8.0
// option: -debug:portable
// Does something that a question is asked about, until its input ends; says `ready` once it does. It prints nothing else.
//
//     Asked locks | limits | orphan | starvation | pauses | exceptions | dies | allocations | boxes | leaks | timer | tracer
//
// locks: a thread `keeper` sleeps with a lock in Holds, for which another one waits in Wants. limits: another one waits for it in Tries,
// for 500 ms, again and again. orphan: a thread has ended with the lock, and another one waits for it in Wants. starvation: work of the pool blocks in
// Blocks on other work of the pool. pauses: Trims collects. exceptions: Throws throws, and Catches catches. dies: so do Indexes and Opens, for which the
// framework throws; when its input ends it dies by FailFast. allocations: Parses makes
// an Order three times for each byte[] of Reads. boxes: Boxes has made 10,000
// boxes of Point, in code that is not optimised yet. leaks: a static list keeps each Node. timer, tracer: Outer calls Inner twice,
// and Same with two types.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

class Order { public long A, B, C, D; }
struct Point { public long X, Y; }
class Node { public byte[] Data = new byte[1000]; }

static class Asked
{
    static readonly object gate = new();
    static readonly List<Node> kept = new();
    static object last;
    static readonly int[] one = new int[1];
    static int sum;

    static int Main(string[] args)
    {
        switch (args[0])
        {
            case "locks":
                Repeat("keeper", Keeps);
                Repeat("waiter", Wants);
                break;
            case "limits":
                Repeat("keeper", KeepsLong);
                Repeat("waiter", Tries);
                break;
            case "orphan":
                var owner = new Thread(() => Monitor.Enter(gate));
                owner.Start();
                owner.Join();
                Repeat("waiter", Wants);
                break;
            case "starvation":
                ThreadPool.SetMinThreads(2, 2);
                for (int i = 0; i < 16; i++) Serves();
                break;
            case "pauses": Repeat("worker", Trims); break;
            case "background":
                // A small generation is collected while the threads stand.
                last = Enumerable.Range(0, 40_000).Select(_ => new byte[1000]).ToArray();
                GC.Collect();
                Repeat("worker", () => GC.Collect(2, GCCollectionMode.Forced, false));
                break;
            case "collects":
                last = Enumerable.Range(0, 40_000).Select(_ => new byte[1000]).ToArray();
                Repeat("collects", GC.Collect);
                Repeat("works", () => Thread.SpinWait(100_000));
                break;
            case "exceptions": Repeat("worker", Catches); break;
            case "dies": Repeat("worker", () => { Catches(); Caught(Indexes); Caught(Opens); }); break;
            case "allocations": Repeat("worker", Allocates); break;
            case "boxes":
                for (int i = 0; i < 10000; i++) Boxes(i);
                break;
            case "leaks": Repeat("worker", Leaks); break;
            default: Repeat("worker", Outer); break;
        }
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
        if (args[0] == "dies") Environment.FailFast("as it was told");
        if (args[0] == "throws") throw new NotSupportedException("nobody catches it");
        return last == null && sum < 0 ? 1 : 0;
    }

    static void Repeat(string name, Action step)
    {
        var thread = new Thread(() => { while (true) { step(); Thread.Sleep(1); } }) { Name = name, IsBackground = true };
        thread.Start();
    }

    static void Keeps() { lock (gate) Holds(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Holds() { Thread.Sleep(20); }

    static void KeepsLong() { lock (gate) Thread.Sleep(5000); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Tries() { if (Monitor.TryEnter(gate, 500)) Monitor.Exit(gate); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Wants() { lock (gate) sum++; }

    static void Serves() { Task.Run(Blocks).ContinueWith(_ => Serves()); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Blocks() { sum += LoadsAsync().Result; }

    static async Task<int> LoadsAsync()
    {
        await Task.Delay(50);
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Trims() { GC.Collect(0); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Catches()
    {
        try { Throws(); }
        catch (InvalidOperationException) { sum++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throws() { throw new InvalidOperationException("asked for"); }

    static void Caught(Action throws)
    {
        try { throws(); }
        catch (Exception) { sum++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Indexes() { sum += one[sum | 1]; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Opens() { System.IO.File.OpenRead("/nowhere/at/all").Dispose(); }

    static void Allocates()
    {
        for (int i = 0; i < 10000; i++)
        {
            Parses();
            Parses();
            Parses();
            Reads();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Parses() { last = new Order(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Reads() { last = new byte[24]; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Boxes(int x) { last = new Point { X = x }; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Leaks() { kept.Add(new Node()); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Outer() { Inner(); Inner(); Same(1); Same(1.0); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static T Same<T>(T value) => value;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Inner() { sum++; }
}
