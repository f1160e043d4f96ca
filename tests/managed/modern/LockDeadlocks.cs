// target: 10.0
// option: -debug:embedded
// Threads that wait for System.Threading.Lock, and for monitors. Says `ready` once all stand where they are to stand,
// until its input ends.
//
//     LockDeadlocks two|mixed|ring|again|one|none
//
// two: `circle 0` and `circle 1` wait each for the Lock that the other has. mixed: the first one's is a monitor. ring:
// three, with a monitor between two Locks. again: as two, but both have waited before, for a Lock for which `last`
// waits now and which `keeper` has; the threads of the circle have references to it on their stacks. one: `waiter 0` to
// `waiter 3` wait for the Lock that `sleeper` has. none: each `sleeper` sleeps in a Lock of its own, which it has
// entered twice.

using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;

static class LockDeadlocks
{
    sealed class Account;

    static readonly ManualResetEvent never = new(false);
    static readonly List<Thread> threads = [];
    static readonly Lock common = new();
    static int entered;

    static int Main(string[] args)
    {
        Lock first = new(), second = new();
        switch (args[0])
        {
            case "two": Circle(first, second); break;
            case "mixed": Circle(new Account(), first); break;
            case "ring": Circle(first, new Account(), second); break;
            case "again": Again(first, second); break;
            case "one": One(first); break;
            case "none": None(first, second); break;
        }
        UntilAllWait();
        Console.WriteLine("ready");
        while (Console.ReadLine() != null) { }
        return 0;
    }

    static void Start(string name, ThreadStart start)
    {
        Thread thread = new(start) { Name = name, IsBackground = true };
        threads.Add(thread);
        thread.Start();
    }

    static void UntilAllWait()
    {
        foreach (var thread in threads)
            while ((thread.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Yield();
    }

    static void UntilEntered(int count) { while (Volatile.Read(ref entered) < count) Thread.Yield(); }

    // Objects of both kinds: a Lock as an object of its own class is locked as such.
    static void Hold(object gate, Action inside)
    {
        if (gate is Lock one) lock (one) inside();
        else lock (gate) inside(); // wants
    }

    static void Circle(params object[] gates)
    {
        for (int i = 0; i < gates.Length; i++)
        {
            object own = gates[i], next = gates[(i + 1) % gates.Length];
            Start("circle " + i, () => Wants(own, next, gates.Length));
        }
    }

    static void Wants(object own, object next, int count) => Hold(own, () =>
    {
        Interlocked.Increment(ref entered);
        UntilEntered(count);
        Hold(next, () => { });
    });

    static void Again(Lock first, Lock second)
    {
        lock (common)
        {
            Start("circle 0", () => WantsAgain(first, second, common, common));
            Start("circle 1", () => WantsAgain(second, first, common, common));
            UntilAllWait();
        }
        UntilEntered(2);
        Start("keeper", () => Sleeps(common));
        UntilEntered(3);
        Start("last", () => { lock (common) { } });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void WantsAgain(Lock own, Lock next, Lock before, Lock another)
    {
        lock (before) { }
        lock (own)
        {
            Interlocked.Increment(ref entered);
            UntilEntered(2);
            lock (next) { GC.KeepAlive(another); }
        }
        GC.KeepAlive(before);
    }

    static void One(Lock gate)
    {
        Start("sleeper", () => Sleeps(gate));
        UntilEntered(1);
        for (int i = 0; i < 4; i++) Start("waiter " + i, () => { lock (gate) { } });
    }

    static void None(params Lock[] gates)
    {
        foreach (var gate in gates) Start("sleeper", () => Sleeps(gate));
        UntilEntered(gates.Length);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Sleeps(Lock gate)
    {
        lock (gate)
        lock (gate)
        {
            Interlocked.Increment(ref entered);
            never.WaitOne();
        }
    }
}
