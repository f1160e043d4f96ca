// Async operations that wait, in known numbers. Says `ready` once all of them wait, until its input ends.
//
//     Waiting [COUNT = 30]
//
// COUNT requests wait for a semaphore, 20 for a timer, 5 for a promise that a list can keep, 3 for promises that nothing
// can keep any more. One waits for all of 4 parts, which wait for a promise. A thread is blocked by an operation that
// waits for a promise. Two operations wait for each other. 6 wait for one promise, one for any of 2, one for what continues
// after a promise. 10 have ended.
using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

static class Shop
{
    public static readonly SemaphoreSlim gate = new SemaphoreSlim(0);
    public static readonly List<TaskCompletionSource<int>> promises = new List<TaskCompletionSource<int>>();

    static TaskCompletionSource<int> Promise()
    {
        TaskCompletionSource<int> promise = new TaskCompletionSource<int>();
        promises.Add(promise);
        return promise;
    }

    public static async Task<int> Load() { await gate.WaitAsync(); return 1; }
    public static async Task Request() { await Load(); }
    public static async Task Poll() { await Task.Delay(3600000).ConfigureAwait(false); }
    public static async Task<int> Answer() { return await Promise().Task; }
    public static async Task Asks() { await Answer(); }
    public static async Task Forgets() { await new TaskCompletionSource<string>().Task; }
    public static async Task<int> Part() { return await Promise().Task; }
    public static async Task Whole() { await Task.WhenAll(Part(), Part(), Part(), Part()); }
    static readonly Task<int> shared = Promise().Task;
    public static async Task Shares() { await shared; }
    public static async Task Any() { await Task.WhenAny(Promise().Task, Promise().Task); }
    public static async Task Continues() { await Promise().Task.ContinueWith(_ => 1); }
    public static async Task Blocks() { await Promise().Task; }
    public static async Task Ends() { await Task.Yield(); }
    public static async Task First(Task begin) { await begin; await Waiting.second; }
    public static async Task Second(Task begin) { await begin; await Waiting.first; }
}

static class Waiting
{
    public static Task first, second;
    static readonly List<Task> all = new List<Task>();

    static void Start(int count, Func<Task> start) { for (int i = 0; i < count; i++) all.Add(start()); }

    static int Main(string[] args)
    {
        Start(args.Length > 0 ? int.Parse(args[0]) : 30, Shop.Request);
        Start(20, Shop.Poll);
        Start(5, Shop.Asks);
        Start(3, Shop.Forgets);
        Start(1, Shop.Whole);
        Start(6, Shop.Shares);
        Start(1, Shop.Any);
        Start(1, Shop.Continues);
        TaskCompletionSource<int> begin = new TaskCompletionSource<int>();
        first = Shop.First(begin.Task);
        second = Shop.Second(begin.Task);
        begin.SetResult(1);
        Task blocks = Shop.Blocks();
        Thread blocked = new Thread(() => blocks.Wait()) { IsBackground = true };
        blocked.Start();
        while ((blocked.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Yield();
        for (int i = 0; i < 10; i++) Shop.Ends().Wait();
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
        GC.KeepAlive(all);
        return 0;
    }
}
