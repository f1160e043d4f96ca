// target: 11.0
// option: -debug:embedded
// Requests (activities) that wait for a timer again and again, until its input ends.
//
//     Queued DELAY [BUSY]
//
// Each waits for DELAY milliseconds. With BUSY, each thread of the pool is busy with work of BUSY milliseconds, and as
// much work again is always queued: whatever is put into the queue waits there for BUSY milliseconds or more.
using System;
using System.Diagnostics;
using System.Threading;
using System.Threading.Tasks;

static class Shop
{
    static readonly ActivitySource source = new("Shop");
    public static volatile bool isOver;
    public static int delay;

    public static async Task Requests()
    {
        while (!isOver)
        {
            await Task.Yield();
            using Activity activity = source.StartActivity("GET /orders", ActivityKind.Server);
            await Load();
        }
    }

    static async Task Load()
    {
        await Task.Delay(delay); // load
    }
}

static class Queued
{
    static int busy;

    static int Main(string[] args)
    {
        Shop.delay = int.Parse(args[0]);
        busy = args.Length > 1 ? int.Parse(args[1]) : 0;
        int threads = Environment.ProcessorCount;
        ThreadPool.SetMaxThreads(threads, threads);
        if (busy > 0)
            for (int i = 0; i < 2 * threads; i++) ThreadPool.UnsafeQueueUserWorkItem(_ => Works(), null);
        Task requests = Shop.Requests();
        Console.WriteLine("ready");
        while (Console.ReadLine() != null) { }
        Shop.isOver = true;
        requests.Wait();
        return 0;
    }

    static void Works()
    {
        Thread.Sleep(busy);
        if (!Shop.isOver) ThreadPool.UnsafeQueueUserWorkItem(_ => Works(), null);
    }
}
