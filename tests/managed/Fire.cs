// Has the runtime make callbacks of all kinds without pause, on many threads at once, while one of them collects and others
// load and unload: for the matrix under fire (tests/profilers/matrix/fire/mod.rs). Each worker checks what it computes.
//
//     Fire CONDITION LEAST MOST
//
// CONDITION is `collect`, `lock` or `unload`: in the last, assemblies come and go on three threads, else on one. It ends after
// LEAST seconds as soon as the profiler says that it has asked enough, and after MOST in any case. Exit code 0: all is as it
// should be; 8: a worker did not come to its end; 9: a worker computed something else than it should. FIRE_WITHOUT
// names workers to leave out, to narrow a fault down.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Diagnostics.Tracing;
using System.IO;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

class Holder
{
    public int Number = 7;
    public Holder Next;
    public static int Ordinary = 41;
    [ThreadStatic] public static int PerThread;
}

struct Pair { public int A; public long B; }

/// Its instantiations are first seen while modules go, and stay.
class Cell<T>
{
    public T Value = default(T);
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static string Name() { return typeof(T).Name; }
}

class Wrong : Exception { public Wrong(string what) : base(what) { } }

class Dying
{
    public static int Ended;
    readonly int[] numbers = new int[5];
    ~Dying() { Interlocked.Add(ref Ended, numbers.Length); }
}

/// What tests/profilers/matrix/facts.rs looks for: one of everything.
static class Matrix
{
    public static byte[] Bytes;
    [MethodImpl(MethodImplOptions.NoInlining)] public static int Compiled() { return Holder.Ordinary + 1; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Ready() { }
}

/// Functions with hooks. Each checks what it was called with: a hook must not change that.
static class Args
{
    public static string Text(int number) { return "text of " + number; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static Holder Objects(Holder holder, string text, int[] numbers, object boxed, Holder other)
    {
        if (text != Text(holder.Number)) throw new Wrong("the string is " + text);
        if (numbers.Length != 4 || numbers[3] != holder.Number) throw new Wrong("the array is of " + numbers.Length);
        if ((int)boxed != holder.Number) throw new Wrong("the box holds " + boxed);
        if (other.Number != holder.Number + 1 || other.Next != holder) throw new Wrong("the second object holds " + other.Number);
        return other;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static string Mixed(int a, double b, Pair pair, string text, ref Holder holder, long c, float d, Holder e, Holder f)
    {
        if (b != a * 0.5 || pair.A != a || pair.B != a * 3L || c != a * 5L || d != a) throw new Wrong("numbers of " + a);
        if (text != Text(a) || holder.Number != a || e != holder || f.Next != e) throw new Wrong("objects of " + a);
        return text;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static List<Holder> Generic<T>(T value, List<Holder> list, Holder last)
    {
        if (list[list.Count - 1] != last) throw new Wrong("the list of " + value);
        list.Add(new Holder { Number = list.Count });
        return list;
    }
}

static class Fire
{
    [UnmanagedFunctionPointer(CallingConvention.StdCall)]
    delegate int Probe(IntPtr pinned);

    static volatile bool hasEnded;
    public static object kept;
    static int wrong;
    static Probe probe;
    static readonly ConditionalWeakTable<Holder, Holder> Table = new ConditionalWeakTable<Holder, Holder>();

    static int Main(string[] args)
    {
        bool isUnloading = args[0] == "unload";
        double least = double.Parse(args[1]), most = double.Parse(args[2]);
        Matrix.Bytes = new byte[] { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 };
        Holder.PerThread = 17;
        kept = new Pair { A = 1, B = 2 };
        Matrix.Compiled();
        Func<int, int> twice = Times(2);
        Check(twice(21) == 42, "twice");
        Throw(1);
        GCHandle pin = GCHandle.Alloc(new int[4], GCHandleType.Pinned);
        IntPtr pinned = IntPtr.Subtract(pin.AddrOfPinnedObject(), 2 * IntPtr.Size);
        probe = FindProbe();
        probe(pinned);
        Matrix.Ready();
        Thread.CurrentThread.Name = "others";

        List<KeyValuePair<string, Thread>> workers = new List<KeyValuePair<string, Thread>>();
        string without = "," + Environment.GetEnvironmentVariable("FIRE_WITHOUT") + ",";
        Action<string, Action<int>> begin = (name, job) =>
        {
            if (!without.Contains("," + name + ",")) workers.Add(Begin(name, job));
        };
        begin("collect", Collect);
        begin("allocate", Allocate);
        begin("call", Call);
        begin("call too", Call);
        begin("throw", number => { Throw(number); if (number % 8 == 0) Thread.Sleep(1); });
        begin("threads", Threads);
        begin("compile", number => { Check(Times(number % 100)(3) == 3 * (number % 100), "dynamic"); Thread.Sleep(1); });
        begin("instantiate", Instantiate);
        begin("emit", Emit);
        begin("probe", number => { if (number % 16 == 0) Thread.Sleep(1); probe(IntPtr.Zero); });
        begin("load", Load);
        if (isUnloading) { begin("load too", Load); begin("emit too", Emit); }

        Stopwatch watch = Stopwatch.StartNew();
        while (watch.Elapsed.TotalSeconds < most)
        {
            Thread.Sleep(100);
            if (probe(IntPtr.Zero) != 0 && watch.Elapsed.TotalSeconds >= least) break;
        }
        hasEnded = true;
        bool isStuck = false;
        foreach (KeyValuePair<string, Thread> worker in workers)
        {
            if (worker.Value.Join(120000)) continue;
            Console.Error.WriteLine("fire-fault: the worker `" + worker.Key + "` does not get on");
            isStuck = true;
        }
        Check(twice(21) == 42, "twice, at the end");
        pin.Free();
        Console.WriteLine("through");
        return isStuck ? 8 : wrong > 0 ? 9 : 0;
    }

    static Probe FindProbe()
    {
        IntPtr address = new IntPtr(long.Parse(Environment.GetEnvironmentVariable("CORPROF_MATRIX_PROBE") ?? "0"));
        if (address == IntPtr.Zero) return _ => 1; // no profiler
        return (Probe)Marshal.GetDelegateForFunctionPointer(address, typeof(Probe));
    }

    static void Check(bool isRight, string what)
    {
        if (!isRight) throw new Wrong(what);
    }

    static KeyValuePair<string, Thread> Begin(string name, Action<int> job)
    {
        Thread thread = new Thread(() =>
        {
            try { for (int number = 1; !hasEnded; number++) job(number); }
            catch (Exception error)
            {
                Interlocked.Increment(ref wrong);
                Console.Error.WriteLine("fire-fault: the worker `" + name + "`: " + error);
            }
        });
        thread.IsBackground = true;
        thread.Name = name;
        thread.Start();
        return new KeyValuePair<string, Thread>(name, thread);
    }

    /// Compacting: objects move.
    static void Collect(int number)
    {
        GC.Collect(number % 3, GCCollectionMode.Forced, true, true);
        if (number % 16 == 0) GC.WaitForPendingFinalizers();
        // A thread that collects without any pause leaves the others of two processors nothing.
        Thread.Sleep(number % 4 == 0 ? 1 : 0);
    }

    static void Allocate(int number)
    {
        Holder head = null;
        for (int i = 0; i < 200; i++)
        {
            object gap = new byte[i % 50 + 1];
            head = new Holder { Number = number + i, Next = i % 20 == 0 ? null : head };
            if (i % 50 == 0) { new Dying(); Table.Add(head, new Holder()); kept = gap; }
        }
        GCHandle handle = GCHandle.Alloc(head, GCHandleType.Weak);
        kept = new byte[90000];
        for (int i = 199; head != null; i--, head = head.Next) Check(head.Number == number + i, "the list");
        handle.Free();
        if (number % 8 == 0) Thread.Sleep(1);
    }

    static void Call(int number)
    {
        // Garbage before each, so that there is something to compact.
        kept = new byte[number % 100];
        Holder holder = new Holder { Number = number };
        kept = new byte[number % 77];
        Holder other = new Holder { Number = number + 1, Next = holder };
        Check(Args.Objects(holder, Args.Text(number), new[] { 1, 2, 3, number }, number, other) == other, "the result");
        Check(Matrix.Compiled() == Holder.Ordinary + 1, "what is compiled anew");
        string text = Args.Text(number);
        string same = Args.Mixed(number, number * 0.5, new Pair { A = number, B = number * 3L }, text, ref holder, number * 5L,
            number, holder, other);
        Check((object)same == (object)text && text == Args.Text(number), "the text");
        List<Holder> list = new List<Holder> { holder };
        Check(Args.Generic(text, Args.Generic(number, list, holder), list[1]).Count == 3, "the list");
        if (number % 4 == 0) Thread.Sleep(1);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throw(int number)
    {
        int steps = 0;
        try
        {
            try { throw new InvalidOperationException(number.ToString()); }
            finally { steps++; }
        }
        catch (InvalidOperationException error) when (error.Message == number.ToString()) { steps++; kept = error; }
        Check(steps == 2, "a finally or a catch was left out");
    }

    static void Threads(int number)
    {
        long sum = 0;
        Thread[] threads = new Thread[3];
        for (int i = 0; i < threads.Length; i++)
        {
            int own = i;
            threads[i] = new Thread(() =>
            {
                Holder.PerThread = own;
                for (int k = 0; k < 100; k++) Interlocked.Add(ref sum, new Holder().Number);
            });
            threads[i].Name = "passing " + number;
            threads[i].Start();
        }
        foreach (Thread thread in threads) thread.Join();
        Check(sum == 2100, "the sum of threads");
        Thread.Sleep(1);
    }

    static Func<int, int> Times(int factor)
    {
        DynamicMethod method = new DynamicMethod("Times", typeof(int), new[] { typeof(int) }, typeof(Fire).Module);
        Fill(method.GetILGenerator(), factor);
        return (Func<int, int>)method.CreateDelegate(typeof(Func<int, int>));
    }

    static void Fill(ILGenerator il, int factor)
    {
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldc_I4, factor);
        il.Emit(OpCodes.Mul);
        il.Emit(OpCodes.Ret);
    }

    static readonly Type[] Numbers = { typeof(int), typeof(long), typeof(byte), typeof(double), typeof(Pair), typeof(char) };

    /// A class that was not there so far, and that stays: cells of cells, spelled by the digits of the number.
    static void Instantiate(int number)
    {
        Type type = Numbers[number % Numbers.Length];
        for (int rest = number; rest > 0; rest /= Numbers.Length)
            type = (rest % 2 == 0 ? typeof(Cell<>) : typeof(KeyValuePair<,>)).MakeGenericType(
                rest % 2 == 0 ? new[] { type } : new[] { type, Numbers[rest % Numbers.Length] });
        type = typeof(Cell<>).MakeGenericType(type);
        Check((string)type.GetMethod("Name").Invoke(null, null) == type.GetGenericArguments()[0].Name, "the name of a cell");
        Array.CreateInstance(type, 1);
        if (number % 16 == 0) new EventSource("Fire-Source").Dispose();
        Thread.Sleep(number < 500 ? 2 : 20);
    }

    static void Emit(int number)
    {
        AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(
            new AssemblyName("Emitted" + number % 100), AssemblyBuilderAccess.RunAndCollect);
        TypeBuilder type = assembly.DefineDynamicModule("Emitted").DefineType("Emitted", TypeAttributes.Public);
        MethodBuilder method = type.DefineMethod(
            "Triple", MethodAttributes.Public | MethodAttributes.Static, typeof(int), new[] { typeof(int) });
        Fill(method.GetILGenerator(), 3);
        Type made = type.CreateType();
        Activator.CreateInstance(typeof(List<>).MakeGenericType(made));
        Array.CreateInstance(made, 1);
        Check((int)made.GetMethod("Triple").Invoke(null, new object[] { number }) == number * 3, "what was emitted");
        Thread.Sleep(4);
    }

    // By reflection, because the compiler's libraries do not have it.
    static readonly Type Context = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);
    static readonly byte[] Itself = File.ReadAllBytes(typeof(Fire).Assembly.Location);

    /// Loads this program once more, into a context that goes.
    static void Load(int number)
    {
        object context = Activator.CreateInstance(Context, new object[] { "passing", true });
        MethodInfo load = Context.GetMethod("LoadFromStream", new[] { typeof(Stream) });
        Assembly assembly = (Assembly)load.Invoke(context, new object[] { new MemoryStream(Itself) });
        Type holder = assembly.GetType("Holder");
        object number7 = holder.GetField("Number").GetValue(Activator.CreateInstance(holder));
        Check(holder != typeof(Holder) && number7.Equals(7), "what was loaded");
        MethodInfo text = assembly.GetType("Args").GetMethod("Text");
        Check((string)text.Invoke(null, new object[] { number }) == Args.Text(number), "what a loaded function answers");
        Activator.CreateInstance(assembly.GetType("Cell`1").MakeGenericType(holder));
        Context.GetMethod("Unload").Invoke(context, null);
        Thread.Sleep(4);
    }
}
