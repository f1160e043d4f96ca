// Has the runtime make as many kinds of callbacks as one program can: for the matrix of who may call what.
using System;
using System.Collections.Generic;
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

class Late { public static int Touched = 1; public int Value = 2; }

class Finalizable
{
    public static int Count;
    public int[] Numbers = new int[5];
    public Holder Held = new Holder();
    ~Finalizable() { Count++; }
}

delegate void Probe(IntPtr pinned);

static class Matrix
{
    static byte[] bytes;
    static object kept;
    static readonly ConditionalWeakTable<Holder, Holder> Table = new ConditionalWeakTable<Holder, Holder>();

    static int Main()
    {
        bytes = new byte[] { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 };
        kept = new Pair { A = 1, B = 2 };
        Holder.Ordinary++;
        Holder.PerThread = 17;
        Compiled();
        Func<int, int> twice = Twice();
        twice(21);
        Fail();

        // An array's elements begin two words after the array.
        GCHandle pin = GCHandle.Alloc(new int[4], GCHandleType.Pinned);
        IntPtr pinned = IntPtr.Subtract(pin.AddrOfPinnedObject(), 2 * IntPtr.Size);
        Probe probe = FindProbe();
        probe(pinned);
        Ready();
        probe(pinned);

        Fail();
        LoadAndTouch();
        Thread thread = new Thread(() => new Random(1).Next()) { Name = "matrix" };
        thread.Start();
        thread.Join();
        Twice()(4);
        kept = new EventSource("Matrix-Source");
        Garbage();
        Unload();
        for (int i = 0; i < 3; i++)
        {
            GC.Collect(2, GCCollectionMode.Forced, true, true); // compacting: objects move
            GC.WaitForPendingFinalizers();
        }
        Thread scratch = new Thread(Scratch);
        scratch.Start();
        scratch.Join();
        Thread.CurrentThread.Name = "others";
        Compiled();
        pin.Free();
        string modes = Environment.GetEnvironmentVariable("MATRIX_MODES");
        if (modes != null) Thread.CurrentThread.Name = "modes"; // has a profiler look at the modes of calls
        if (modes == "leaves") Allocations();
        Console.WriteLine("twice={0} bytes={1}", twice(21), bytes.Length);
        return kept != null ? 0 : 1;
    }

    static Probe FindProbe()
    {
        IntPtr address = new IntPtr(long.Parse(Environment.GetEnvironmentVariable("CORPROF_MATRIX_PROBE") ?? "0"));
        if (address == IntPtr.Zero) return _ => { }; // no profiler
        return (Probe)Marshal.GetDelegateForFunctionPointer(address, typeof(Probe));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Ready() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Scratch() { }

    /// Allocates, for a profiler that has much to ask of each object.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Allocations()
    {
        for (int i = 0; i < 3000; i++)
        {
            kept = new Holder { Number = i };
            Thread.Sleep(1); // so that a collection that was held up can come to its end
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Compiled() { return Inlined() + 1; }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static int Inlined() { return Holder.Ordinary; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Fail()
    {
        try { Guarded(); }
        catch (InvalidOperationException error) when (error.Message.Length > 0) { kept = error; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Guarded()
    {
        try { throw new InvalidOperationException("matrix"); }
        finally { Holder.Ordinary++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void LoadAndTouch()
    {
        Late.Touched++;
        kept = new Late();
        Assembly again = Assembly.Load(File.ReadAllBytes(typeof(Matrix).Assembly.Location), new byte[] { 1, 2, 3 });
        kept = again.GetType("Late");
        // Classes and methods of the core library that nothing has used yet.
        kept = new SortedDictionary<int, string> { { 1, "one" } };
        kept = Inlines();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static object Inlines() { return Inlined() + Inlined(); }

    static Func<int, int> Twice()
    {
        DynamicMethod twice = new DynamicMethod("Twice", typeof(int), new[] { typeof(int) }, typeof(Matrix).Module);
        ILGenerator il = twice.GetILGenerator();
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Dup);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Ret);
        return (Func<int, int>)twice.CreateDelegate(typeof(Func<int, int>));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Garbage()
    {
        for (int i = 0; i < 10; i++) new Finalizable();
        Holder holder = new Holder { Next = new Holder() };
        Table.Add(holder, new Holder());
        kept = holder;
        GCHandle handle = GCHandle.Alloc(holder);
        GC.Collect();
        handle.Free();
    }

    /// Loads this program once more, into a context that can be unloaded.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Unload()
    {
        // By reflection, because the compiler's libraries do not have it.
        Type type = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);
        object context = Activator.CreateInstance(type, new object[] { "passing", true });
        string path = typeof(Matrix).Assembly.Location;
        Assembly assembly = (Assembly)type.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        Activator.CreateInstance(assembly.GetType("Late"));
        type.GetMethod("Unload").Invoke(context, null);
    }
}
