// Threads that come and go, about a thousand a second: some with little stack, some that end while they hold a lock or in the middle of
// native calls, some of the system's own.
//
//     Fleeting [SECONDS = 1] [orphans]
//
// Without SECONDS it goes on until the end of its input, and answers each line of it, `collect` after a collection. With `orphans`
// the main thread ends first.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

class Kept<T>
{
    [ThreadStatic] public static object Value;
    [ThreadStatic] public static long Number;
}

static class Fleeting
{
    delegate IntPtr Body(IntPtr number);

    [DllImport("libc")] static extern int usleep(uint microseconds);
    [DllImport("libc.so.6")] static extern int pthread_create(out IntPtr thread, IntPtr attributes, Body body, IntPtr number);
    [DllImport("libc.so.6")] static extern int pthread_join(IntPtr thread, IntPtr result);

    const int Kinds = 10, Small = 64 * 1024;
    static readonly Body foreign = number => { Interlocked.Increment(ref ended); return IntPtr.Zero; };
    static readonly object gate = new object();
    static volatile bool isOver;
    static int started, ended, wrong;

    static int Main(string[] args)
    {
        List<Thread> makers = new List<Thread>();
        for (int i = 0; i < 3; i++) makers.Add(new Thread(Make));
        if (args.Length > 1)
        {
            makers.Add(new Thread(() => { Thread.Sleep((int)(1000 * double.Parse(args[0]))); isOver = true; }));
            foreach (Thread maker in makers) maker.Start();
            new Thread(() => { foreach (Thread maker in makers) maker.Join(); Tell(); }).Start();
            return 0;
        }
        foreach (Thread maker in makers) maker.Start();
        if (args.Length > 0) Thread.Sleep((int)(1000 * double.Parse(args[0])));
        else Answer();
        isOver = true;
        foreach (Thread maker in makers) maker.Join();
        return Tell();
    }

    static void Answer()
    {
        Say("ready");
        for (string line = Console.ReadLine(); line != null && line != "end"; line = Console.ReadLine())
        {
            if (line == "collect") GC.Collect();
            Say("done " + line);
        }
    }

    static int Tell()
    {
        Say(started == ended && wrong == 0 && started > 0 ? "all have ended" : started + " started, " + ended + " ended, " + wrong + " wrong");
        return started == ended ? 0 : 1;
    }

    static void Say(string line)
    {
        Console.WriteLine(line);
        Console.Out.Flush();
    }

    // Six are alive at a time.
    static void Make()
    {
        List<Thread> alive = new List<Thread>();
        while (!isOver)
        {
            int kind = Interlocked.Increment(ref started) % Kinds;
            if (kind == 0 && !IsWindows) alive.Add(null);
            Thread thread = kind == 0 && !IsWindows ? null : new Thread(() => Live(kind), kind % 2 == 0 ? Small : 0);
            if (thread == null)
            {
                IntPtr own;
                pthread_create(out own, IntPtr.Zero, foreign, IntPtr.Zero);
                pthread_join(own, IntPtr.Zero);
                alive.Remove(null);
            }
            else
            {
                if (kind == 3) thread.Name = "named " + kind;
                thread.IsBackground = kind == 5;
                thread.Start();
                alive.Add(thread);
            }
            if (alive.Count < 6) continue;
            foreach (Thread old in alive) old.Join();
            alive.Clear();
        }
        foreach (Thread old in alive) old.Join();
    }

    static bool IsWindows { get { return Environment.OSVersion.Platform == PlatformID.Win32NT; } }

    static void Live(int kind)
    {
        try
        {
            if (Do(kind) != kind) Interlocked.Increment(ref wrong);
        }
        finally { Interlocked.Increment(ref ended); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Do(int kind)
    {
        switch (kind)
        {
            case 1: return Deeper(60) - 60 + 1;
            case 2: Monitor.Enter(new object()); return kind;
            case 3: Use<string>(); Use<Fleeting3>(); return kind;
            case 4: if (!IsWindows) usleep(300); return kind;
            case 5: return Throws() + 4;
            case 6: lock (gate) { Thread.SpinWait(500); } return kind;
            case 7: lock (gate) { Monitor.Wait(gate, 1); } return kind;
            case 8: return Deeper(5) - 5 + 8;
            case 9: new ManualResetEventSlim(false).Wait(1); return kind;
            default: return kind;
        }
    }

    class Fleeting3 { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Deeper(int depth) { return depth == 0 ? 0 : 1 + Deeper(depth - 1); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Use<T>()
    {
        Kept<T>.Value = new object();
        Kept<T>.Number++;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Throws()
    {
        object none = null;
        try { return none.GetHashCode(); }
        catch (NullReferenceException) { return 1; }
    }
}
