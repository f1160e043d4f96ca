// Does at once, on many threads, whatever makes a profiler's life hard, and ends as it is told to.
//
//     Stress SEED ROUNDS ENDING [MILLISECONDS]
//
// Each worker does one kind of job, over and over; what comes of a job depends on seed and number only. For each of ROUNDS
// numbers a line is printed when all workers are through with it, and then the lines end. So whatever the timing, and
// whoever looks on, what is printed is the beginning of the same text. ENDING is one of
//
//     whole      when all lines are printed: Main returns 0
//     return     after the time, by Main, which returns 3
//     exit       after the time, by Environment.Exit(7) on a thread that is not Main's
//     callback   the same, from managed code that native code has called
//     throw      after the time, by an exception that nobody catches
//     failfast   after the time, by Environment.FailFast
//
// Before it ends it waits until each worker has done one more job, and tells on standard error which have not (none, unless
// somebody has stopped a thread and forgotten it), and how long a thread that only sleeps for a millisecond was away at most.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

class Pain : Exception { public readonly long Value; public Pain(long value) { Value = value; } }

static class Broken { public static readonly int Value = int.Parse("not a number"); }

class Dying
{
    public static long Ended;
    readonly byte[] ballast = new byte[100];

    ~Dying()
    {
        try { throw new Pain(ballast.Length); }
        catch (Pain) { Interlocked.Increment(ref Ended); }
    }
}

/// What the workers do: each takes a seed for its job and answers what came of it. All threads are background threads: the
/// runtime waits at the end of `Main` until there is a moment without others, and workers go on for ever.
static class Jobs
{
    public static long Mix(long seed)
    {
        ulong z = (ulong)seed + 0x9E3779B97F4A7C15;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        return (long)(z ^ (z >> 31));
    }

    static int Below(long seed, int limit) { return (int)((ulong)Mix(seed) % (ulong)limit); }

    public static long Threads(long seed)
    {
        long sum = 0;
        Thread[] threads = new Thread[6];
        for (int i = 0; i < threads.Length; i++)
        {
            long number = seed + i;
            threads[i] = new Thread(() => Interlocked.Add(ref sum, Churn(number)), i % 2 == 0 ? 0 : 256 * 1024);
            threads[i].IsBackground = true;
            if (i % 3 == 0) threads[i].Name = "short-lived " + i;
            threads[i].Start();
        }
        foreach (Thread thread in threads) thread.Join();
        return sum;
    }

    static long Churn(long seed)
    {
        List<string> texts = new List<string>();
        for (int i = 0; i < 50; i++) texts.Add((seed + i).ToString());
        long sum = 0;
        foreach (string text in texts) sum += text.Length * text[text.Length - 1];
        return sum;
    }

    public static long Garbage(long seed)
    {
        object[] kept = new object[500];
        GCHandle pinned = GCHandle.Alloc(new byte[64], GCHandleType.Pinned);
        WeakReference weak = new WeakReference(kept);
        for (int i = 0; i < 5000; i++)
        {
            byte[] piece = new byte[Below(seed + i, 200) + 1];
            piece[0] = (byte)i;
            kept[Below(seed - i, kept.Length)] = piece;
        }
        byte[] large = new byte[100000];
        large[99999] = 1;
        GC.Collect(Below(seed, 3), Below(seed, 2) == 0 ? GCCollectionMode.Forced : GCCollectionMode.Optimized);
        pinned.Free();
        long sum = large[99999] + (weak.IsAlive ? 1 : 0);
        foreach (object piece in kept) if (piece != null) sum = sum * 31 + ((byte[])piece)[0] + ((byte[])piece).Length;
        return sum;
    }

    public static long Exceptions(long seed)
    {
        long sum = 0;
        // Through frames of its own, with filters and finally blocks.
        try { Deep(20, seed, ref sum); }
        catch (Pain pain) when (pain.Value == seed) { sum += 1; }
        // Through the runtime's own native frames: of reflection, of a static constructor.
        try { typeof(Jobs).GetMethod("Thrower").Invoke(null, new object[] { seed }); }
        catch (TargetInvocationException error) { sum += ((Pain)error.InnerException).Value; }
        try { sum += Broken.Value; }
        catch (TypeInitializationException) { sum += 10; }
        // As signals of the processor.
        string none = seed == long.MinValue ? "" : null;
        try { sum += none.Length; }
        catch (NullReferenceException) { sum += 100; }
        int zero = none == null ? 0 : 1;
        try { sum += 7 / zero; }
        catch (DivideByZeroException) { sum += 1000; }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Deep(int depth, long seed, ref long sum)
    {
        try { if (depth == 0) throw new Pain(seed); Deep(depth - 1, seed, ref sum); }
        catch (Pain) when (depth % 5 == 1) { sum += depth; throw; }
        finally { sum += depth; }
    }

    public static void Thrower(long seed) { throw new Pain(seed); }

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    public delegate int Compare(IntPtr one, IntPtr other);

    [DllImport("libc.so.6", EntryPoint = "qsort", CallingConvention = CallingConvention.Cdecl)]
    static extern void SortByLibc(int[] items, UIntPtr count, UIntPtr size, Compare compare);

    [DllImport("msvcrt", EntryPoint = "qsort", CallingConvention = CallingConvention.Cdecl)]
    static extern void SortByMsvcrt(int[] items, UIntPtr count, UIntPtr size, Compare compare);

    [DllImport("libc.so.6", EntryPoint = "usleep")]
    static extern int SleepByLibc(uint microseconds);

    [DllImport("kernel32", EntryPoint = "Sleep")]
    static extern void SleepByKernel(uint milliseconds);

    public static void Sort(int[] items, Compare compare)
    {
        if (Foreign.IsWindows) SortByMsvcrt(items, new UIntPtr((uint)items.Length), new UIntPtr(4), compare);
        else SortByLibc(items, new UIntPtr((uint)items.Length), new UIntPtr(4), compare);
        GC.KeepAlive(compare);
    }

    public static long Native(long seed)
    {
        int[] items = new int[40];
        for (int i = 0; i < items.Length; i++) items[i] = Below(seed + i, 1000);
        int calls = 0;
        Sort(items, (one, other) =>
        {
            int order = Marshal.ReadInt32(one).CompareTo(Marshal.ReadInt32(other));
            if (++calls % 64 == 0) GC.Collect(0);
            // An exception must not cross the native frames, and begins and ends above them.
            try { throw new Pain(order); }
            catch (Pain pain) { return (int)pain.Value; }
        });
        if (Foreign.IsWindows) SleepByKernel(1); else SleepByLibc(500);
        long sum = 0;
        foreach (int item in items) sum = sum * 31 + item;
        return sum;
    }

    // By reflection, because the compiler's libraries do not have it.
    static readonly Type Context = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);
    static readonly string Folder = Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location);

    public static long Assemblies(long seed)
    {
        WeakReference context = LoadAndRun(Path.Combine(Folder, Below(seed, 2) == 0 ? "Generics.dll" : "Throw.dll"));
        for (int attempt = 0; context.IsAlive && attempt < 3; attempt++) { GC.Collect(); Thread.Sleep(5); }
        return Below(seed, 2);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static WeakReference LoadAndRun(string path)
    {
        object context = Activator.CreateInstance(Context, new object[] { "passing", true });
        // On Windows the runtime loads a file like a library. Wine changes its list of libraries while it looks others up to unwind
        // their frames: a thread that throws just then crashes, with or without a profiler.
        bool asBytes = Foreign.IsWindows;
        MethodInfo load = Context.GetMethod(asBytes ? "LoadFromStream" : "LoadFromAssemblyPath",
            new[] { asBytes ? typeof(Stream) : typeof(string) });
        object from = asBytes ? new MemoryStream(File.ReadAllBytes(path)) : (object)path;
        Assembly assembly = (Assembly)load.Invoke(context, new[] { from });
        MethodInfo main = assembly.EntryPoint;
        object[] arguments = main.GetParameters().Length == 0 ? null : new object[] { new[] { "1" } };
        Thread thread = new Thread(() => main.Invoke(null, arguments)) { IsBackground = true };
        thread.Start();
        thread.Join();
        Context.GetMethod("Unload").Invoke(context, null);
        return new WeakReference(context);
    }

    public static long Emitted(long seed)
    {
        // The finalizer's thread unloads them, and must be able to keep up.
        Thread.Sleep(5);
        AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(
            new AssemblyName("Emitted" + Below(seed, 1000)), AssemblyBuilderAccess.RunAndCollect);
        TypeBuilder type = assembly.DefineDynamicModule("Emitted").DefineType("Emitted", TypeAttributes.Public);
        MethodBuilder method = type.DefineMethod(
            "Triple", MethodAttributes.Public | MethodAttributes.Static, typeof(int), new[] { typeof(int) });
        Fill(method.GetILGenerator(), 3);
        Type made = type.CreateType();
        // An instantiation of a type that stays, over one that goes.
        object list = Activator.CreateInstance(typeof(List<>).MakeGenericType(made));
        return (int)made.GetMethod("Triple").Invoke(null, new object[] { Below(seed, 1000) }) + list.GetHashCode() * 0;
    }

    static void Fill(ILGenerator il, int factor)
    {
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldc_I4, factor);
        il.Emit(OpCodes.Mul);
        il.Emit(OpCodes.Ret);
    }

    public static long Dynamic(long seed)
    {
        long sum = 0;
        Thread.Sleep(1);
        for (int i = 0; i < 5; i++)
        {
            DynamicMethod method = new DynamicMethod("Times", typeof(int), new[] { typeof(int) }, typeof(Jobs).Module);
            Fill(method.GetILGenerator(), i + 2);
            sum += ((Func<int, int>)method.CreateDelegate(typeof(Func<int, int>)))(Below(seed + i, 1000));
        }
        return sum;
    }

    public static long Recursion(long seed) { return Recurse(Below(seed, 1500), seed); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Recurse(int depth, long seed)
    {
        if (depth == 0) { if (Below(seed, 8) == 0) GC.Collect(0); return 1; }
        try { return Recurse(depth - 1, seed) * 3 + Mix(seed + depth) % 1000; }
        finally { seed++; }
    }

    public static long Locks(long seed)
    {
        object gate = new object();
        long sum = 0;
        int turn = 0;
        Thread[] threads = new Thread[3];
        for (int i = 0; i < threads.Length; i++)
        {
            int number = i;
            threads[i] = new Thread(() =>
            {
                for (int step = 0; step < 300; step++) lock (gate) sum += number + step;
                for (int step = 0; step < 5; step++)
                    lock (gate)
                    {
                        while (turn % threads.Length != number) Monitor.Wait(gate);
                        turn++;
                        Monitor.PulseAll(gate);
                    }
            }) { IsBackground = true };
        }
        foreach (Thread thread in threads) thread.Start();
        foreach (Thread thread in threads) thread.Join();
        return sum * 100 + turn;
    }

    public static long Finalizers(long seed)
    {
        for (int i = 0; i < 30; i++) new Dying();
        GC.Collect();
        Thread.Sleep(5);
        return 30;
    }

    public static long Pool(long seed)
    {
        long sum = 0;
        using (CountdownEvent left = new CountdownEvent(16))
        {
            for (int i = 0; i < 15; i++)
                ThreadPool.QueueUserWorkItem(number => { Interlocked.Add(ref sum, Churn((long)number)); left.Signal(); }, seed + i);
            using (new Timer(state => left.Signal(), null, 1, Timeout.Infinite)) left.Wait();
        }
        return sum;
    }
}

/// Threads that the runtime did not make (see Foreign.cs).
static class Foreign
{
    delegate IntPtr Body(IntPtr number);

    [DllImport("libc.so.6", EntryPoint = "pthread_create")]
    static extern int CreateByLibc(out IntPtr thread, IntPtr attributes, Body body, IntPtr number);

    [DllImport("libc.so.6", EntryPoint = "pthread_join")]
    static extern int JoinByLibc(IntPtr thread, IntPtr result);

    [DllImport("libpthread.so.0", EntryPoint = "pthread_create")]
    static extern int CreateByLibpthread(out IntPtr thread, IntPtr attributes, Body body, IntPtr number);

    [DllImport("libpthread.so.0", EntryPoint = "pthread_join")]
    static extern int JoinByLibpthread(IntPtr thread, IntPtr result);

    [DllImport("kernel32")]
    static extern IntPtr CreateThread(IntPtr attributes, UIntPtr stack, Body body, IntPtr number, int flags, IntPtr id);

    [DllImport("kernel32")]
    static extern int WaitForSingleObject(IntPtr handle, int milliseconds);

    [DllImport("kernel32")]
    static extern int CloseHandle(IntPtr handle);

    public static readonly bool IsWindows = Environment.OSVersion.Platform == PlatformID.Win32NT;
    static readonly Body body = Work;
    static bool isOldLibc;
    static long sum;

    public static long Job(long seed)
    {
        IntPtr[] threads = new IntPtr[4];
        sum = 0;
        for (int i = 0; i < threads.Length; i++) threads[i] = Start((int)(seed & 0xffff) + i);
        foreach (IntPtr thread in threads) Join(thread);
        return sum;
    }

    static IntPtr Work(IntPtr number)
    {
        try { throw new Pain(number.ToInt64()); }
        catch (Pain pain) { Interlocked.Add(ref sum, pain.Value); }
        return IntPtr.Zero;
    }

    static IntPtr Start(int number)
    {
        IntPtr thread;
        if (IsWindows) return CreateThread(IntPtr.Zero, UIntPtr.Zero, body, new IntPtr(number), 0, IntPtr.Zero);
        // Before glibc 2.34 threads had a library of their own.
        try
        {
            if (!isOldLibc)
            {
                CreateByLibc(out thread, IntPtr.Zero, body, new IntPtr(number));
                return thread;
            }
        }
        catch (EntryPointNotFoundException) { isOldLibc = true; }
        CreateByLibpthread(out thread, IntPtr.Zero, body, new IntPtr(number));
        return thread;
    }

    static void Join(IntPtr thread)
    {
        if (IsWindows) { WaitForSingleObject(thread, -1); CloseHandle(thread); }
        else if (isOldLibc) JoinByLibpthread(thread, IntPtr.Zero);
        else JoinByLibc(thread, IntPtr.Zero);
    }
}

static class Stress
{
    static readonly Func<long, long>[] Kinds =
    {
        Jobs.Threads, Foreign.Job, Jobs.Garbage, Jobs.Exceptions, Jobs.Native, Jobs.Assemblies, Jobs.Emitted, Jobs.Dynamic,
        Jobs.Recursion, Jobs.Locks, Jobs.Finalizers, Jobs.Pool,
    };

    static readonly object progress = new object();
    static readonly long[] done = new long[Kinds.Length];
    static long[,] results;
    static volatile bool hasEnded;
    static long longestAway;

    static int Main(string[] args)
    {
        long seed = long.Parse(args[0]);
        int rounds = int.Parse(args[1]), milliseconds = args.Length > 3 ? int.Parse(args[3]) : 0;
        string ending = args[2];
        // So long a thread may take for one job: it is far from that, but where each instruction is emulated.
        int patience = args.Length > 4 ? int.Parse(args[4]) : 40;
        // What loaded programs print is theirs.
        TextWriter console = Console.Out;
        Console.SetOut(TextWriter.Null);

        results = new long[Kinds.Length, rounds];
        Begin("heartbeat", Beat);
        for (int kind = 0; kind < Kinds.Length; kind++)
        {
            int number = kind;
            Begin(Kinds[kind].Method.Name, () => Work(number, seed, rounds));
        }
        if (ending != "whole") Begin("end", () => End(ending, milliseconds, patience, seed));

        for (int round = 0; round < rounds; round++)
        {
            lock (progress) while (!hasEnded && !IsThrough(round)) Monitor.Wait(progress);
            if (hasEnded) return 3;
            console.WriteLine(Line(round));
        }
        if (ending == "whole") { Tell(""); return 0; }
        lock (progress) while (!hasEnded) Monitor.Wait(progress);
        return 3;
    }

    static void Begin(string name, ThreadStart body)
    {
        new Thread(body) { IsBackground = true, Name = name }.Start();
    }

    static void Work(int kind, long seed, int rounds)
    {
        for (int number = 0; ; number++)
        {
            long result = Kinds[kind](Jobs.Mix(seed + number * Kinds.Length + kind));
            lock (progress)
            {
                if (number < rounds) results[kind, number] = result;
                done[kind]++;
                Monitor.PulseAll(progress);
            }
        }
    }

    static bool IsThrough(int round)
    {
        foreach (long jobs in done) if (jobs <= round) return false;
        return true;
    }

    static string Line(int round)
    {
        string line = "round " + round + ":";
        for (int kind = 0; kind < Kinds.Length; kind++) line += " " + results[kind, round].ToString("x");
        return line;
    }

    static void Beat()
    {
        for (Stopwatch watch = Stopwatch.StartNew(); ; watch.Restart())
        {
            Thread.Sleep(1);
            longestAway = Math.Max(longestAway, watch.ElapsedMilliseconds);
        }
    }

    static void Tell(string stuck)
    {
        long jobs = 0;
        foreach (long count in done) jobs += count;
        Console.Error.WriteLine("pulse: jobs={0} longest-away-ms={1} stuck={2}", jobs, longestAway, stuck);
    }

    static void End(string ending, int milliseconds, int patience, long seed)
    {
        Thread.Sleep(milliseconds);
        long[] before;
        lock (progress) before = (long[])done.Clone();
        string stuck = "";
        for (int kind = 0; kind < Kinds.Length; kind++)
        {
            Stopwatch watch = Stopwatch.StartNew();
            while (Interlocked.Read(ref done[kind]) == before[kind] && watch.Elapsed.TotalSeconds < patience) Thread.Sleep(1);
            if (Interlocked.Read(ref done[kind]) == before[kind]) stuck += Kinds[kind].Method.Name + ",";
        }
        Tell(stuck);
        switch (ending)
        {
            case "return": lock (progress) { hasEnded = true; Monitor.PulseAll(progress); } break;
            case "exit": Environment.Exit(7); break;
            case "callback": Jobs.Sort(new[] { 2, 1 }, (one, other) => { Environment.Exit(7); return 0; }); break;
            case "throw": throw new Pain(seed);
            case "failfast": Environment.FailFast("as it was told to"); break;
            default: throw new ArgumentException("no such ending: " + ending);
        }
    }
}
