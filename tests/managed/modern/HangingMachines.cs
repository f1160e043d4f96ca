// target: 8.0
// Threads that hang in resumed methods, which other methods await, beside a suspended method of the same kind.
// Says `ready`, until its input ends. With `warm` all methods have run for that many milliseconds before, and are
// optimised.
//
//     HangingMachines [warm MILLISECONDS]
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

static class Hanging
{
    static readonly ManualResetEventSlim end = new();
    static readonly CountdownEvent hanging = new(4);
    static volatile bool isWarm;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Hangs(string name)
    {
        if (!isWarm)
        {
            return;
        }
        Thread.CurrentThread.Name = name;
        hanging.Signal();
        end.Wait();
    }

    static async Task Leaf(string name)
    {
        await Task.Yield();
        Hangs(name);
    }

    static async Task<int> Load(string name) { await Leaf(name); return name.Length; }
    static async Task<string> First(string name) { return name + await Load(name); }
    static async Task Second(string name) { await Load(name); }
    static async ValueTask<string> Text(string name)
    {
        await Task.Yield();
        Hangs(name);
        return name;
    }
    static async Task Third(string name) { await Text(name); }
    // It hangs in the method that the completion of another one has resumed.
    static async Task Fourth(string name)
    {
        await Quick();
        Hangs(name);
    }
    static async Task Quick() { await Task.Yield(); }
    static async Task Fifth(string name) { await Fourth(name); }

    static async Task Decoy(TaskCompletionSource never)
    {
        await never.Task;
        Hangs("decoy");
    }

    static void WarmUp(int milliseconds)
    {
        Stopwatch watch = Stopwatch.StartNew();
        while (watch.ElapsedMilliseconds < milliseconds)
        {
            Task.WaitAll(First("first"), Second("second"), Third("third"), Fifth("fifth"));
        }
    }

    static int Main(string[] args)
    {
        if (args.Length == 2)
        {
            WarmUp(int.Parse(args[1]));
        }
        isWarm = true;
        TaskCompletionSource never = new();
        Task[] all = { First("of first"), Second("of second"), Third("of third"), Fifth("of fifth"), Decoy(never) };
        hanging.Wait();
        Thread.Sleep(200);
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
        end.Set();
        GC.KeepAlive(all);
        return 0;
    }
}
