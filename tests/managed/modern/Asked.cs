// target: 8.0
// option: -debug:portable
// Does something that a question is asked about, until its input ends; says `ready` once it does. It prints nothing else.
//
//     Asked locks | starvation | pauses | exceptions | allocations | leaks | timer | tracer
//
// locks: a thread `keeper` sleeps with a lock in Holds, for which another one waits in Wants. starvation: work of the pool blocks in
// Blocks on other work of the pool. pauses: Trims collects. exceptions: Throws throws, and Catches catches. allocations: Parses makes
// an Order three times for each byte[] of Reads. leaks: a static list keeps each Node. timer, tracer: Outer calls Inner twice,
// and Same with two types.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

class Order { public long A, B, C, D; }
class Node { public byte[] Data = new byte[1000]; }

static class Asked
{
    static readonly object gate = new();
    static readonly List<Node> kept = new();
    static object last;
    static int sum;

    static int Main(string[] args)
    {
        switch (args[0])
        {
            case "locks":
                Repeat("keeper", Keeps);
                Repeat("waiter", Wants);
                break;
            case "starvation":
                ThreadPool.SetMinThreads(2, 2);
                for (int i = 0; i < 16; i++) Serves();
                break;
            case "pauses": Repeat("worker", Trims); break;
            case "exceptions": Repeat("worker", Catches); break;
            case "allocations": Repeat("worker", Allocates); break;
            case "leaks": Repeat("worker", Leaks); break;
            default: Repeat("worker", Outer); break;
        }
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
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
    static void Leaks() { kept.Add(new Node()); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Outer() { Inner(); Inner(); Same(1); Same(1.0); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static T Same<T>(T value) => value;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Inner() { sum++; }
}
