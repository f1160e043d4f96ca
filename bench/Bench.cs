// What `cargo xtask bench` runs: it times itself, so that the start and the end of the process stay outside.
//
//     Bench alloc SLICES OBJECTS   allocates OBJECTS small objects SLICES times; prints how many there were in all, with those
//                                  of the warm-up, and what each slice took
//     Bench load SLICES OBJECTS    the same after it has loaded all types of the core library, so that a profiler may ask about them
//     Bench call SLICES CALLS      the same with calls of a method that does nothing; and at the end the peak of resident
//                                  memory, where /proc tells it
//     Bench spin SLICES CALLS THREADS
//                                  the same on so many threads at once, each slice on new ones
//     Bench crowd MILLISECONDS THREADS WORKING
//                                  has so many threads, of which so many work for so long and the others wait; prints the calls,
//                                  and the processor time of all threads and of the one that is named "sampler"
//     Bench work SLICES CALLS      the same with methods that take a third of a microsecond, in and out of one that calls ten of them
//     Bench throw DEPTH            throws an exception at the bottom of DEPTH calls, and catches it at the top
//     Bench unload SLICES CONTEXTS loads this assembly into CONTEXTS collectible contexts SLICES times, runs a little of it, and waits
//                                  until all are unloaded
//     Bench wait                   prints a line and waits until standard input ends, so that its memory can be looked at
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;

static class Bench
{
    class Small { }

    static Small last;

    static int Main(string[] args)
    {
        switch (args.Length > 0 ? args[0] : "")
        {
            case "alloc": return Slices(int.Parse(args[1]), int.Parse(args[2]));
            case "load": return Load() == 0 ? 1 : Slices(int.Parse(args[1]), int.Parse(args[2]));
            case "call": return CallSlices(int.Parse(args[1]), int.Parse(args[2]));
            case "spin": return Spin(int.Parse(args[1]), int.Parse(args[2]), int.Parse(args[3]));
            case "crowd": return Crowd(int.Parse(args[1]), int.Parse(args[2]), int.Parse(args[3]));
            case "work": return WorkSlices(int.Parse(args[1]), int.Parse(args[2]));
            case "throw": return Throw(int.Parse(args[1]));
            case "unload": return Unload(int.Parse(args[1]), int.Parse(args[2]));
            case "wait": return Wait();
            default: return 2;
        }
    }

    static int Slices(int slices, int objects)
    {
        // Until the first collection, allocating is mostly getting fresh memory from the system.
        long warmUp = 0;
        while (GC.CollectionCount(0) == 0)
        {
            Allocate(objects);
            warmUp += objects;
        }
        long[] ticks = new long[slices];
        for (int i = 0; i < slices; i++)
        {
            long start = Stopwatch.GetTimestamp();
            Allocate(objects);
            ticks[i] = Stopwatch.GetTimestamp() - start;
        }
        Console.WriteLine("objects={0}", warmUp + (long)slices * objects);
        foreach (long t in ticks) Console.WriteLine("slice_ns={0:F0}", t * 1e9 / Stopwatch.Frequency);
        return last == null ? 1 : 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Allocate(int objects)
    {
        // Each is stored, so that no compiler can leave it out.
        for (int i = 0; i < objects; i++) last = new Small();
    }

    static int Load()
    {
        int loaded = 0;
        foreach (Type type in typeof(object).Assembly.GetTypes())
            if (type.TypeHandle.Value != IntPtr.Zero) loaded++;
        return loaded;
    }

    static int CallSlices(int slices, int calls)
    {
        int sum = Call(calls);
        long[] ticks = new long[slices];
        for (int i = 0; i < slices; i++)
        {
            long start = Stopwatch.GetTimestamp();
            sum += Call(calls);
            ticks[i] = Stopwatch.GetTimestamp() - start;
        }
        Console.WriteLine("calls={0}", (slices + 1L) * calls);
        foreach (long t in ticks) Console.WriteLine("slice_ns={0:F0}", t * 1e9 / Stopwatch.Frequency);
        const string status = "/proc/self/status", peak = "VmHWM:";
        if (File.Exists(status))
            foreach (string line in File.ReadAllLines(status))
                if (line.StartsWith(peak, StringComparison.Ordinal)) Console.WriteLine("peak_kib={0}", line.Substring(peak.Length).Replace("kB", "").Trim());
        return sum == (slices + 1) * calls ? 0 : 1;
    }

    static int WorkSlices(int slices, int calls)
    {
        int sum = 0;
        for (int i = 0; i < slices; i++)
        {
            long start = Stopwatch.GetTimestamp();
            for (int n = 0; n < calls; n += 10) sum += Ten(n);
            Console.WriteLine("slice_ns={0:F0}", (Stopwatch.GetTimestamp() - start) * 1e9 / Stopwatch.Frequency);
        }
        Console.WriteLine("calls={0}", (long)slices * (calls + calls / 10));
        return sum == 42 ? 1 : 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Ten(int number)
    {
        for (int i = 0; i < 10; i++) number += Part(number);
        return number;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Part(int number)
    {
        for (int i = 0; i < 300; i++) number = number * 1664525 + 1013904223;
        return number;
    }

    static int Spin(int slices, int calls, int threads)
    {
        int[] sums = new int[threads];
        for (int i = 0; i <= slices; i++)
        {
            Thread[] workers = new Thread[threads];
            long start = Stopwatch.GetTimestamp();
            for (int n = 0; n < threads; n++)
            {
                int number = n;
                workers[n] = new Thread(() => sums[number] = Call(calls));
                workers[n].Start();
            }
            foreach (Thread worker in workers) worker.Join();
            // The first warms up.
            if (i > 0) Console.WriteLine("slice_ns={0:F0}", (Stopwatch.GetTimestamp() - start) * 1e9 / Stopwatch.Frequency);
        }
        return Array.TrueForAll(sums, sum => sum == calls) ? 0 : 1;
    }

    static int Crowd(int milliseconds, int threads, int working)
    {
        ManualResetEventSlim end = new ManualResetEventSlim();
        long[] calls = new long[working];
        Thread[] all = new Thread[threads];
        bool isOver = false;
        for (int n = 0; n < threads; n++)
        {
            int number = n;
            all[n] = new Thread(() =>
            {
                // Above the wait there are some frames, as in an application.
                if (number >= working) Below(10, () => end.Wait());
                else Below(10, () => { for (; !Volatile.Read(ref isOver); Volatile.Write(ref calls[number], calls[number] + 1)) Ten(number); });
            });
            all[n].Start();
        }
        // Until all wait, and the code is compiled at its last tier.
        Thread.Sleep(1000);
        long before = Sum(calls), time = ProcessorTime(""), sampler = ProcessorTime("sampler"), start = Stopwatch.GetTimestamp();
        Thread.Sleep(milliseconds);
        long done = Sum(calls) - before;
        Console.WriteLine("wall_ns={0:F0}", (Stopwatch.GetTimestamp() - start) * 1e9 / Stopwatch.Frequency);
        Console.WriteLine("sampler_ns={0}", ProcessorTime("sampler") - sampler);
        Console.WriteLine("all_ns={0}", ProcessorTime("") - time);
        Console.WriteLine("calls={0}", done);
        Volatile.Write(ref isOver, true);
        end.Set();
        foreach (Thread one in all) one.Join();
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Below(int depth, Action work)
    {
        if (depth > 0) return Below(depth - 1, work) + 1;
        work();
        return 0;
    }

    static long Sum(long[] numbers)
    {
        long sum = 0;
        for (int n = 0; n < numbers.Length; n++) sum += Volatile.Read(ref numbers[n]);
        return sum;
    }

    /// Of the threads with such a name, or of all, in nanoseconds.
    static long ProcessorTime(string name)
    {
        long sum = 0;
        foreach (string task in Directory.GetDirectories("/proc/self/task"))
            if (name == "" || File.ReadAllText(task + "/comm").Contains(name))
                sum += long.Parse(File.ReadAllText(task + "/schedstat").Split(' ')[0]);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Call(int calls)
    {
        int sum = 0;
        for (int i = 0; i < calls; i++) sum = Next(sum);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Next(int number) { return number + 1; }

    static int Throw(int depth)
    {
        try { Down(depth); }
        catch (InvalidOperationException) { return 0; }
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Down(int depth)
    {
        if (depth == 0) throw new InvalidOperationException();
        return Down(depth - 1) + 1;
    }

    struct Item { public int Number; }

    /// What is loaded and unloaded: classes, code, and instantiations over what goes.
    static int Work(int count)
    {
        List<Item> items = new List<Item>();
        Dictionary<int, Item> numbers = new Dictionary<int, Item>();
        for (int i = 0; i < count; i++)
        {
            items.Add(new Item { Number = Next(i) });
            numbers[i] = items[i];
        }
        return items.Count + numbers.Count;
    }

    static int Unload(int slices, int contexts)
    {
        // By reflection, because the compiler's libraries may not have it.
        Type context = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);
        WeakReference[] all = new WeakReference[contexts];
        for (int i = 0; i <= slices; i++)
        {
            long start = Stopwatch.GetTimestamp();
            for (int n = 0; n < contexts; n++) all[n] = Pass(context);
            while (!Array.TrueForAll(all, one => !one.IsAlive))
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }
            // The first warms up.
            if (i > 0) Console.WriteLine("slice_ns={0:F0}", (Stopwatch.GetTimestamp() - start) * 1e9 / Stopwatch.Frequency);
        }
        Console.WriteLine("contexts={0}", (slices + 1) * contexts);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static WeakReference Pass(Type type)
    {
        object context = Activator.CreateInstance(type, new object[] { "passing", true });
        string path = Assembly.GetExecutingAssembly().Location;
        Assembly assembly = (Assembly)type.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        MethodInfo work = assembly.GetType("Bench").GetMethod("Work", BindingFlags.NonPublic | BindingFlags.Static);
        work.Invoke(null, new object[] { 10 });
        type.GetMethod("Unload").Invoke(context, null);
        return new WeakReference(context);
    }

    static int Wait()
    {
        Console.WriteLine("waiting");
        return Console.OpenStandardInput().ReadByte() < 0 ? 0 : 1;
    }
}
