// target: 8.0
// option: -debug:embedded
// Threads that stand at lines of their own, each in a method with others before and behind. Says `ready` once they do,
// until its input ends.
//
//     Lines
//
// A thread with the name N stands at the line that ends in `// N`, which it has reached by that which ends in `// by N`.
// `catch` is in a catch block: the runtime shows its method where it has left the try block.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

static class Lines
{
    static readonly ManualResetEvent never = new(false);
    static readonly List<Thread> threads = new();
    static volatile bool spins;
    static volatile int sum;

    static int Main()
    {
        Start("plain", Plain);
        Start("branch", () => Branch(2));
        Start("generic", () => new Box<string>().Holds("text"));
        Start("catch", Catches);
        Start("async", () => Awaits().Wait());
        Start("lambda", () =>
        {
            sum++;
            never.WaitOne(); // lambda
            sum++;
        });
        foreach (Thread thread in threads)
            while ((thread.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Yield();
        Start("busy", Spins);
        while (!spins) Thread.Yield();
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
        return 0;
    }

    static void Start(string name, ThreadStart start)
    {
        var thread = new Thread(start) { Name = name, IsBackground = true };
        threads.Add(thread);
        thread.Start();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Plain()
    {
        sum++;
        Waits(1); // by plain
        sum++;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Waits(int number)
    {
        sum += number;
        never.WaitOne(); // plain
        sum += number;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Branch(int number)
    {
        switch (number)
        {
            case 1:
                never.WaitOne();
                break;
            case 2:
                sum++;
                never.WaitOne( // branch
                    Timeout.Infinite);
                break;
            default:
                never.WaitOne();
                break;
        }
    }

    class Box<T>
    {
        T value;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void Holds(T held)
        {
            value = held;
            never.WaitOne(); // generic
            value = default;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Catches()
    {
        try
        {
            sum++;
            throw new InvalidOperationException("caught"); // thrown by catch
        }
        catch (InvalidOperationException)
        {
            sum++;
            never.WaitOne();
        }
    }

    static async Task Awaits()
    {
        await Task.Yield();
        sum++;
        await Task.CompletedTask;
        Thread.CurrentThread.Name = "awaiter";
        sum++;
        never.WaitOne(); // awaiter
        await Task.Yield();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Spins()
    {
        sum++;
        spins = true;
        while (spins) { } // busy
        sum++;
    }
}
