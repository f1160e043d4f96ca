// target: 8.0
// option: -debug:embedded
// As `Waiting`, with lines: state machines that are structs, as of a release. Says `ready`, until its input ends.
//
//     WaitingMachines
using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

static class Shop
{
    public static readonly SemaphoreSlim gate = new(0);
    public static readonly List<TaskCompletionSource<int>> promises = new();

    static Task<int> Promise()
    {
        TaskCompletionSource<int> promise = new();
        lock (promises)
        {
            promises.Add(promise);
        }
        return promise.Task;
    }

    public static async Task<int> Load() { await gate.WaitAsync(); return 1; }
    public static async Task Request() { await Load(); }
    public static async Task Poll() { await Task.Delay(3600000).ConfigureAwait(false); }
    public static async Task<string> Forgets() { return await new TaskCompletionSource<string>().Task; }

    public static async Task Third<T>(T value)
    {
        await Task.CompletedTask;
        await Task.Yield();
        for (int i = 0; i < 2; i++)
        {
            await Promise(); // Third waits here
        }
        await Task.Delay(1);
        GC.KeepAlive(value);
    }
}

static class WaitingMachines
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
        Start(2, () => Shop.Third(1));
        Start(2, () => Shop.Third("text"));
        while (Shop.promises.Count < 4) Thread.Sleep(1);
        Thread.Sleep(100); // the last of them waits when its thread has returned
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
        GC.KeepAlive(all);
        return 0;
    }
}
