// target: 11.0
// option: -features:runtime-async=on
// option: -debug:embedded
// option: -nowarn:SYSLIB5007
// As `Waiting`, with methods that the runtime itself suspends: 30 requests wait for a semaphore, 20 for a timer, 3 for
// promises that nothing can keep any more, 7 for a channel, one for all of 4 parts. Says `ready`, until its input ends.
//
//     WaitingRuntimeAsync
using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;

static class Shop
{
    public static readonly SemaphoreSlim gate = new(0);
    public static readonly Channel<int> channel = Channel.CreateUnbounded<int>();
    public static readonly List<TaskCompletionSource<int>> promises = new();

    static Task<int> Promise()
    {
        TaskCompletionSource<int> promise = new();
        promises.Add(promise);
        return promise.Task;
    }

    public static async Task<int> Load() { await gate.WaitAsync(); return 1; }
    public static async Task Request() { await Load(); }
    public static async Task Poll() { await Task.Delay(3600000).ConfigureAwait(false); }
    public static async Task Forgets() { await new TaskCompletionSource<string>().Task; }
    public static async Task<int> Part() { return await Promise(); }
    public static async Task Whole() { await Task.WhenAll(Part(), Part(), Part(), Part()); }
    public static async ValueTask<int> Next() { return await channel.Reader.ReadAsync(); }
    public static async Task Reads() { await Next(); }
}

static class WaitingRuntimeAsync
{
    static readonly List<Task> all = new();

    static void Start(int count, Func<Task> start)
    {
        for (int i = 0; i < count; i++) all.Add(start());
    }

    static int Main()
    {
        Start(30, Shop.Request);
        Start(20, Shop.Poll);
        Start(3, Shop.Forgets);
        Start(7, Shop.Reads);
        Start(1, Shop.Whole);
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
        GC.KeepAlive(all);
        return 0;
    }
}
