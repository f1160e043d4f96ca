// target: 8.0
// Threads that wait for a lock while its owner sleeps. For the example `locks`. With `lock` it is a System.Threading.Lock, of .NET 9
// and later.
//
//     Locks [ROUNDS = 20] [MILLISECONDS = 50] [monitor|lock]

using System;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;

static class Program
{
    static readonly object gate = new();
    static Action enter = Of(typeof(Monitor), gate, nameof(Monitor.Enter), typeof(object));
    static Action exit = Of(typeof(Monitor), gate, nameof(Monitor.Exit), typeof(object));
    static Thread[] waiters;
    static volatile int round, waiting, served;

    static int Main(string[] args)
    {
        int rounds = args.Length > 0 ? int.Parse(args[0]) : 20, milliseconds = args.Length > 1 ? int.Parse(args[1]) : 50;
        if (args.Length > 2 && args[2] == "lock")
        {
            var type = Type.GetType("System.Threading.Lock") ?? throw new PlatformNotSupportedException("no Lock before .NET 9");
            var modern = Activator.CreateInstance(type);
            enter = Of(type, modern, "Enter");
            exit = Of(type, modern, "Exit");
        }
        var keeper = new Thread(() => Keeps(rounds, milliseconds)) { Name = "keeper" };
        waiters = Enumerable.Range(0, 3).Select(i => new Thread(() => Waits(rounds)) { Name = $"waiter {i}" }).ToArray();
        Array.ForEach(waiters, waiter => waiter.Start());
        keeper.Start();
        keeper.Join();
        Array.ForEach(waiters, waiter => waiter.Join());
        Console.WriteLine($"served={served}");
        return served == 3 * rounds ? 0 : 1;
    }

    static Action Of(Type type, object target, string method, params Type[] parameters) =>
        type.GetMethod(method, parameters).CreateDelegate<Action>(target);

    static void Keeps(int rounds, int milliseconds)
    {
        for (int at = 1; at <= rounds; at++)
        {
            enter();
            Holds(at, milliseconds);
            exit();
            SpinWait.SpinUntil(() => served >= 3 * round);
        }
    }

    // Sleeps with the lock, when all others are blocked.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Holds(int at, int milliseconds)
    {
        round = at;
        SpinWait.SpinUntil(() => waiting >= 3 * at && Array.TrueForAll(waiters, IsBlocked));
        Thread.Sleep(milliseconds);
    }

    static bool IsBlocked(Thread thread) => thread.ThreadState.HasFlag(ThreadState.WaitSleepJoin);

    static void Waits(int rounds)
    {
        for (int at = 1; at <= rounds; at++)
        {
            SpinWait.SpinUntil(() => round >= at);
            Wants();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Wants()
    {
        Interlocked.Increment(ref waiting);
        enter();
        Interlocked.Increment(ref served);
        exit();
    }
}
