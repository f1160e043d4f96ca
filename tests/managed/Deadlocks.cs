// Threads that wait for monitors. Says `ready` once all stand where they are to stand, until its input ends.
//
//     Deadlocks two|ring|limited|again|one|none|waits|semaphore|busy|turns
//
// two: `circle 0` and `circle 1` wait each for the monitor that the other has. ring: three of them, in a ring. limited:
// as two, with a time limit. again: as two, but both have waited before, for a monitor for which `last` waits now and
// which `keeper` has. one: `waiter 0` to `waiter 3` wait for the monitor that `sleeper` has. none: each `sleeper`
// sleeps in a monitor of its own, which it has entered twice. waits: `waiter` is in Monitor.Wait, so that `sleeper` has
// its monitor, for which `last` waits. semaphore: `waiter 0` and `waiter 1` wait for a SemaphoreSlim. busy: many threads enter two of three monitors, always in the same order, and
// allocate, while the heap is compacted again and again. turns: eight threads hold one monitor for 5 ms each, in turn, for most of
// the time.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;

static class Deadlocks
{
    sealed class Account { }

    sealed class Ledger<T> { }

    static readonly ManualResetEvent never = new ManualResetEvent(false);
    static readonly object[] gates = { new Account(), new Ledger<int>(), new int[2] };
    static readonly object common = new object();
    static readonly List<Thread> threads = new List<Thread>();
    static int entered;

    static int Main(string[] args)
    {
        switch (args[0])
        {
            case "two": Circle(2, Timeout.Infinite); break;
            case "ring": Circle(3, Timeout.Infinite); break;
            case "limited": Circle(2, 600000); break;
            case "again": Again(); break;
            case "one": One(); break;
            case "none": None(); break;
            case "waits": Waits(); break;
            case "semaphore": Semaphore(); break;
            case "busy": Busy(); break;
            case "turns": TakeTurns(); break;
        }
        if (args[0] != "busy" && args[0] != "turns") UntilAllWait();
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
        return 0;
    }

    static void Start(string name, ThreadStart start)
    {
        Thread thread = new Thread(start) { Name = name, IsBackground = true };
        threads.Add(thread);
        thread.Start();
    }

    static void UntilAllWait()
    {
        foreach (Thread thread in threads)
            while ((thread.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Yield();
    }

    static void UntilEntered(int count) { while (Volatile.Read(ref entered) < count) Thread.Yield(); }

    static void Circle(int count, int limit)
    {
        for (int i = 0; i < count; i++)
        {
            object own = gates[i], next = gates[(i + 1) % count];
            Start("circle " + i, () => Wants(own, next, count, limit));
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Wants(object own, object next, int count, int limit)
    {
        lock (own)
        {
            Interlocked.Increment(ref entered);
            UntilEntered(count);
            if (limit == Timeout.Infinite) lock (next) { }
            else Monitor.TryEnter(next, limit);
        }
    }

    static void Again()
    {
        lock (common)
        {
            for (int i = 0; i < 2; i++)
            {
                object own = gates[i], next = gates[1 - i];
                Start("circle " + i, () => { lock (common) { } Wants(own, next, 2, Timeout.Infinite); });
            }
            UntilAllWait();
        }
        UntilEntered(2);
        Start("keeper", () => Sleeps(common));
        UntilEntered(3);
        Start("last", () => { lock (common) { } });
    }

    static void Busy()
    {
        for (int i = 0; i < 8; i++)
        {
            int seed = i;
            Start("busy " + i, () => Enters(new Random(seed)));
        }
        Start("collector", () =>
        {
            while (true)
            {
                GC.Collect(2, GCCollectionMode.Forced, true, true);
                // Threads that wait for the end of a collection may otherwise meet the next one each time: with musl,
                // on a busy machine, Main then returns after minutes, also without a profiler.
                Thread.Sleep(1);
            }
        });
    }

    static void Enters(Random random)
    {
        object[] kept = new object[1000];
        while (true)
        {
            int first = random.Next(3), second = random.Next(first, 3);
            lock (gates[first])
            {
                kept[random.Next(kept.Length)] = new byte[random.Next(2000)];
                // Now and then long enough that a look from outside meets nobody who has moved on meanwhile.
                lock (gates[second]) if (random.Next(20) == 0) Thread.Sleep(random.Next(40) == 0 ? 100 : 1);
            }
        }
    }

    static void TakeTurns()
    {
        for (int i = 0; i < 8; i++) Start("turn " + i, () => { while (true) HoldsShortly(); });
    }

    static void HoldsShortly()
    {
        lock (common) Holds();
        Thread.Sleep(5);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Holds()
    {
        Thread.Sleep(5);
        Interlocked.Increment(ref entered); // no tail call before
    }

    static void One()
    {
        Start("sleeper", () => Sleeps(gates[0]));
        UntilEntered(1);
        for (int i = 0; i < 4; i++) Start("waiter " + i, () => { lock (gates[0]) { } });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Sleeps(object gate)
    {
        lock (gate)
        lock (gate)
        {
            Interlocked.Increment(ref entered);
            never.WaitOne();
        }
    }

    static void None()
    {
        foreach (object gate in gates) Start("sleeper", () => Sleeps(gate));
        UntilEntered(gates.Length);
    }

    static void Semaphore()
    {
        SemaphoreSlim semaphore = new SemaphoreSlim(0);
        for (int i = 0; i < 2; i++) Start("waiter " + i, () => WantsSemaphore(semaphore));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void WantsSemaphore(SemaphoreSlim semaphore)
    {
        semaphore.Wait();
    }

    static void Waits()
    {
        Start("waiter", () => { lock (gates[0]) { Interlocked.Increment(ref entered); Monitor.Wait(gates[0]); } });
        UntilEntered(1);
        Start("sleeper", () => Sleeps(gates[0]));
        UntilEntered(2);
        Start("last", () => { lock (gates[0]) { } });
    }
}
