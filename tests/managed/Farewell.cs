// Threads of the system's that run managed code when they are nearly gone: in the destructor of a pthread key, which comes after
// the runtime has taken leave of the thread, and again from each destructor that this leaves behind.
//
//     Farewell [THREADS = 50]
//
// Linux only.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Farewell
{
    delegate IntPtr Body(IntPtr number);
    delegate void Destructor(IntPtr number);

    [DllImport("libc.so.6", EntryPoint = "pthread_create")]
    static extern int Create(out IntPtr thread, IntPtr attributes, Body body, IntPtr number);

    [DllImport("libc.so.6", EntryPoint = "pthread_join")]
    static extern int Join(IntPtr thread, IntPtr result);

    [DllImport("libc.so.6", EntryPoint = "pthread_key_create")]
    static extern int CreateKey(out uint key, Destructor destructor);

    [DllImport("libc.so.6", EntryPoint = "pthread_setspecific")]
    static extern int Set(uint key, IntPtr value);

    /// How often a thread's destructors are run at most, as long as they leave something behind.
    const int Rounds = 4;

    static readonly Body body = Work;
    static readonly Destructor destructor = Leave;
    static uint key;
    static int bodies, farewells, caught;

    static int Main(string[] args)
    {
        int threads = args.Length > 0 ? int.Parse(args[0]) : 50;
        CreateKey(out key, destructor);
        for (int started = 0; started < threads;)
        {
            IntPtr[] alive = new IntPtr[Math.Min(8, threads - started)];
            for (int i = 0; i < alive.Length; i++) Create(out alive[i], IntPtr.Zero, body, new IntPtr(++started));
            foreach (IntPtr thread in alive) Join(thread, IntPtr.Zero);
            GC.Collect();
        }
        Console.WriteLine("bodies={0} farewells={1} caught={2}", bodies, farewells, caught);
        return 0;
    }

    static IntPtr Work(IntPtr number)
    {
        Interlocked.Increment(ref bodies);
        Set(key, new IntPtr(1));
        Busy("work", 3);
        return IntPtr.Zero;
    }

    static void Leave(IntPtr round)
    {
        Interlocked.Increment(ref farewells);
        Busy("leave", 5);
        try { Throw(3); } catch (InvalidOperationException) { Interlocked.Increment(ref caught); }
        if (round.ToInt64() < Rounds) Set(key, new IntPtr(round.ToInt64() + 1));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static double Busy(string what, int depth)
    {
        return depth == 0 ? what.Length : Busy(what, depth - 1) + Half(depth);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static double Half(double number) { return number / 2; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throw(int depth)
    {
        if (depth == 0) throw new InvalidOperationException();
        Throw(depth - 1);
        Busy("not reached", depth);
    }
}
