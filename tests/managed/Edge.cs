// Recurses as deep as the runtime advises, and there does what an application does anywhere: calls methods for the first time,
// throws and catches, allocates, starts a thread. On the main thread and on threads with small stacks.
//
//     Edge [TIMES = 3]
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;

static class Edge
{
    static int first, shown;

    static int Main(string[] args)
    {
        int times = args.Length > 0 ? int.Parse(args[0]) : 3;
        foreach (int size in new[] { 0, 256 << 10, 384 << 10, 512 << 10, 1 << 20 })
        {
            for (int i = 0; i < times; i++)
            {
                Thread thread = size == 0 ? new Thread(() => Begin(i)) : new Thread(() => Begin(i), size);
                thread.Start();
                thread.Join();
            }
        }
        Begin(times);
        Console.WriteLine("edges: {0}", shown);
        return 0;
    }

    static void Begin(int kind)
    {
        first = kind;
        Down(1, "text", 2.5, new object());
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Down(int depth, string text, double number, object thing)
    {
        try { RuntimeHelpers.EnsureSufficientExecutionStack(); }
        catch (InsufficientExecutionStackException) { return AtTheEdge(depth, text, thing); }
        return Down(depth + 1, text, number, thing) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AtTheEdge(int depth, string text, object thing)
    {
        try { Throws(depth); }
        catch (InvalidOperationException thrown) { GC.KeepAlive(thrown.Message); }
        List<string> list = new List<string>();
        for (int i = 0; i < 100; i++) list.Add(i.ToString());
        // For the first time on each kind of thread.
        switch (first % 4)
        {
            case 0: GC.KeepAlive(new Pair<int, long>().Twice(list)); break;
            case 1: GC.KeepAlive(new Pair<double, string>().Twice(list)); break;
            case 2: GC.KeepAlive(new Pair<DateTime, Guid>().Twice(list)); break;
            default: GC.KeepAlive(new Pair<string, string>().Twice(list)); break;
        }
        GC.Collect(0);
        shown++;
        return depth;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throws(int depth) { throw new InvalidOperationException("at " + (depth > 0 ? "the edge" : "")); }
}

struct Pair<A, B>
{
    public A First;
    public B Second;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public string Twice(List<string> list)
    {
        Dictionary<string, B> all = new Dictionary<string, B>();
        foreach (string text in list) all[text + typeof(A).Name] = Second;
        return all.Count + ": " + First + typeof(B);
    }
}
