// Calls, throws and catches in every way that a stack can be left by, and allocates a Marker wherever somebody may want to
// compare his idea of the stack with the runtime's.
//
//     Stacks [ROUNDS = 2]
//
// Prints what the methods have worked out, which does not depend on who watches.
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;

// Kept, as the compiler may leave out an object that nobody has.
class Marker { public static int Count; public static volatile Marker Last; public Marker() { Interlocked.Increment(ref Count); Last = this; } }

class A : Exception { }
class B : Exception { }

static class Stacks
{
    static int sum;
    static int Main(string[] args)
    {
        int rounds = args.Length > 0 ? int.Parse(args[0]) : 2;
        for (int round = 0; round < rounds; round++)
        {
            Blocks.All();
            Between.All(round);
            Console.WriteLine("round {0}: {1}", round, sum);
        }
        Run("static constructor", () => Broken.Touch());
        Run("static constructor again", () => Broken.Touch());
        Run("hot loops", () => Add(Loops.Hot(60000)));
        Run("hot loops with exceptions", () => Add(Loops.Throwing(3000)));
        Run("deep", () => Add(Loops.Deep(10000)));
        Threads.All();
        Console.WriteLine("sum {0}", sum);
        Console.Error.WriteLine("markers {0}", Marker.Count);
        return 0;
    }

    public static void Add(int value) { Interlocked.Add(ref sum, value); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Probe() { new Marker(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Raise(Exception exception) { Probe(); throw exception; }

    // Says what left the action, and looks at the stack before, in and after.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Run(string name, Action action)
    {
        Probe();
        try { action(); }
        catch (Exception e) { Probe(); Console.WriteLine("{0}: {1}", name, e.GetType().Name); }
        Probe();
    }
}

class Broken
{
    static Broken() { try { Stacks.Raise(new A()); } finally { Stacks.Probe(); } }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Touch() { }
}

// One way to leave a block each.
static class Blocks
{
    public static void All()
    {
        foreach (MethodInfo method in typeof(Blocks).GetMethods(BindingFlags.Static | BindingFlags.NonPublic | BindingFlags.DeclaredOnly))
            if (method.GetParameters().Length == 0 && method.ReturnType == typeof(void) && method.Name[0] != '<')
                Stacks.Run(method.Name, (Action)Delegate.CreateDelegate(typeof(Action), method));
    }

    static void RethrowUp()
    {
        try { Stacks.Raise(new A()); }
        catch (A) { Stacks.Probe(); throw; } finally { Stacks.Probe(); }
    }

    static void RethrowTwice()
    {
        try { RethrowUp(); }
        catch (A) { Stacks.Probe(); throw; }
    }

    static void RethrowHere()
    {
        try
        {
            try { Stacks.Raise(new A()); }
            catch (A) { Stacks.Probe(); throw; }
        }
        catch (A) { Stacks.Probe(); }
    }

    static void RethrowInCatch()
    {
        try { Stacks.Raise(new A()); }
        catch (A) { RethrowHere(); Stacks.Probe(); }
        Stacks.Probe();
    }

    static void TryInCatch()
    {
        try { Stacks.Raise(new A()); }
        catch (A)
        {
            try { Stacks.Raise(new B()); }
            catch (B) { Stacks.Probe(); }
            finally { Stacks.Probe(); }
            Stacks.Probe();
        }
    }

    static void CatchLeavesByAnother()
    {
        try
        {
            try { Stacks.Raise(new A()); }
            catch (A) { Stacks.Probe(); Stacks.Raise(new B()); }
        }
        catch (B) { Stacks.Probe(); }
    }

    static void FinallyReplaces()
    {
        try { Stacks.Raise(new A()); }
        finally { Stacks.Probe(); Stacks.Raise(new B()); }
    }

    static void FinallyReplacesHere()
    {
        try
        {
            try
            {
                try { Stacks.Raise(new A()); }
                finally { Stacks.Probe(); throw new B(); }
            }
            finally { Stacks.Probe(); }
        }
        catch (B) { Stacks.Probe(); }
        Stacks.Probe();
    }

    static void FinallyCatches()
    {
        try { Stacks.Raise(new A()); }
        finally
        {
            try { Stacks.Raise(new B()); }
            catch (B) { Stacks.Probe(); }
            Stacks.Probe();
        }
    }

    static void FinallyInFinally()
    {
        try
        {
            try { Stacks.Raise(new A()); }
            finally { Stacks.Probe(); FinallyCatches(); }
        }
        finally { Stacks.Probe(); }
    }

    static void FilterThrows()
    {
        try { Stacks.Raise(new A()); }
        catch (A) when (Throws()) { }
    }

    static void FilterThrowsAndThenCaught()
    {
        try { FilterThrows(); }
        catch (A) when (Yes()) { Stacks.Probe(); }
    }

    static void FilterThrowsInOwnFrame()
    {
        int[] none = null;
        try
        {
            try { throw new A(); }
            catch (A) when (none.Length > 0) { }
            finally { Stacks.Probe(); }
        }
        catch (A) when (Yes()) { Stacks.Probe(); }
        Stacks.Probe();
    }

    static void FilterCatches()
    {
        try { Stacks.Raise(new A()); }
        catch (A) when (Catches()) { Stacks.Probe(); }
    }

    static void FiltersAllTheWay()
    {
        try { Filtered(5); }
        catch (A) when (Yes()) { Stacks.Probe(); }
    }

    static void Filtered(int depth)
    {
        try { if (depth == 0) Stacks.Raise(new A()); else Filtered(depth - 1); }
        catch (A) when (No(depth)) { }
        finally { Stacks.Probe(); }
    }

    static bool Throws() { Stacks.Raise(new B()); return true; }

    static bool Catches()
    {
        try { Stacks.Raise(new B()); } catch (B) { Stacks.Probe(); }
        Stacks.Probe();
        return true;
    }

    static bool Yes() { Stacks.Probe(); return true; }

    static bool No(int depth) { Stacks.Probe(); if (depth % 2 == 0) Stacks.Raise(new B()); return false; }

    // The same function many times, left one after another.
    static void Recursive() { Recurse(40); }

    static void Recurse(int depth)
    {
        try { if (depth == 0) Stacks.Raise(new A()); else Recurse(depth - 1); }
        finally { if (depth % 4 == 0) Stacks.Probe(); }
    }

    static void CaughtOneByOne()
    {
        for (int i = 0; i < 5; i++)
        {
            try { Recurse(i); }
            catch (A) { Stacks.Probe(); }
            Stacks.Probe();
        }
    }

    static void RecursesInCatch() { InCatch(6); }

    static void InCatch(int depth)
    {
        try { Stacks.Raise(new A()); }
        catch (A) { Stacks.Probe(); if (depth > 0) InCatch(depth - 1); Stacks.Probe(); }
    }

    // What is called after it lies deeper than what the exception has left.
    static unsafe void AllocatesOnTheStack()
    {
        try { Recurse(3); }
        catch (A) { Stacks.Add(1); }
        byte* bytes = stackalloc byte[5000];
        bytes[0] = 1;
        Stacks.Probe();
        Stacks.Add(bytes[0]);
    }

    static void ByHardware()
    {
        string text = null;
        try { Stacks.Add(text.Length); }
        catch (NullReferenceException) { Stacks.Probe(); }
        try { Stacks.Add(1 / Zero()); }
        catch (DivideByZeroException) { Stacks.Probe(); }
        finally { Stacks.Probe(); }
        int[] few = new int[2];
        try { few[Zero() + 2] = 1; }
        catch (IndexOutOfRangeException) when (Yes()) { Stacks.Probe(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static int Zero() { return 0; }

    static void LeavesByReturn() { Stacks.Add(Returned()); Stacks.Probe(); }

    static int Returned()
    {
        for (int i = 0; ; i++)
        {
            try { if (i == 3) return i; Stacks.Raise(new A()); }
            catch (A) { Stacks.Probe(); continue; }
            finally { Stacks.Probe(); }
        }
    }

    static void Iterates()
    {
        try { foreach (int i in Items()) { Stacks.Probe(); if (i == 2) Stacks.Raise(new A()); } }
        catch (A) { Stacks.Probe(); }
    }

    static IEnumerable<int> Items()
    {
        try { for (int i = 0; i < 5; i++) { Stacks.Probe(); yield return i; } }
        finally { Stacks.Probe(); }
    }

    static void Generics()
    {
        Box<string>.Call("a"); Box<int>.Call(1); Box<object>.Call("b"); Box<DateTime>.Call(default(DateTime));
        new Box<string>().Virtual<int>(3); new Box<string>().Virtual<string>("c");
    }
}

class Box<T>
{
    public static void Call(T item)
    {
        try { Inner(item, 3); } catch (A) when (Check(item)) { Stacks.Probe(); }
        finally { Stacks.Probe(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Inner(T item, int depth) { if (depth == 0) Stacks.Raise(new A()); Inner(item, depth - 1); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Check(T item) { Stacks.Probe(); return true; }

    public virtual void Virtual<U>(U other)
    {
        try { Stacks.Raise(new A()); }
        catch (A) { Stacks.Probe(); }
    }
}

// Native frames, or frames without metadata, between the managed ones.
static class Between
{
    delegate int Comparer(IntPtr a, IntPtr b);

    [DllImport("libc")]
    static extern void qsort(int[] items, IntPtr count, IntPtr size, Comparer comparer);

    public static void All(int round)
    {
        Stacks.Run("reflection", () => typeof(Between).GetMethod("Thrower").Invoke(null, new object[] { 1 }));
        Stacks.Run("reflection that returns", () => typeof(Between).GetMethod("Thrower").Invoke(null, new object[] { 0 }));
        Stacks.Run("constructor", () => Activator.CreateInstance(typeof(Fails)));
        Stacks.Run("dynamic delegate", () => new Action<int>(Thrower).DynamicInvoke(1));
        Stacks.Run("delegates", () => { Action<int> both = Thrower; both += Thrower; both(0); both(1); });
        Stacks.Run("sort", () => Array.Sort(new[] { 3, 1, 2 }, (a, b) => { Stacks.Raise(new A()); return a - b; }));
        if (System.IO.Path.DirectorySeparatorChar == '/') Stacks.Run("native sort", NativeSort);
        Stacks.Run("dynamic method", () => Dynamic()(1));
        Stacks.Run("lazy", () => Stacks.Add(new Lazy<int>(() => { Thrower(1); return 1; }).Value));
    }

    class Fails { public Fails() { Thrower(1); } }

    // Inlined into the dynamic method below, its finally block would be one that the runtime does not tell of.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Thrower(int how)
    {
        try { Stacks.Probe(); if (how > 0) Stacks.Raise(new A()); }
        finally { Stacks.Probe(); }
    }

    static void NativeSort()
    {
        int[] items = { 5, 2, 9, 1, 7 };
        Comparer comparer = (a, b) =>
        {
            Stacks.Probe();
            try { Stacks.Raise(new A()); }
            catch (A) when (Marshal.ReadInt32(a) > 0) { Stacks.Probe(); }
            return Marshal.ReadInt32(a).CompareTo(Marshal.ReadInt32(b));
        };
        qsort(items, (IntPtr)items.Length, (IntPtr)4, comparer);
        GC.KeepAlive(comparer);
        foreach (int item in items) Stacks.Add(item);
        Stacks.Probe();
    }

    static Action<int> Dynamic()
    {
        DynamicMethod method = new DynamicMethod("Dynamic", typeof(void), new[] { typeof(int) }, typeof(Between).Module, true);
        ILGenerator il = method.GetILGenerator();
        il.BeginExceptionBlock();
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Call, typeof(Between).GetMethod("Thrower"));
        il.BeginFinallyBlock();
        // No probe: the runtime does not tell of blocks of methods without metadata, and nobody else knows that they run.
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Call, typeof(Stacks).GetMethod("Add"));
        il.EndExceptionBlock();
        il.Emit(OpCodes.Call, typeof(Stacks).GetMethod("Probe"));
        il.Emit(OpCodes.Ret);
        return (Action<int>)method.CreateDelegate(typeof(Action<int>));
    }
}

static class Loops
{
    // Long enough to be compiled anew while it runs.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Hot(int count)
    {
        int sum = 0;
        for (int i = 0; i < count; i++) { sum += Add(i); if (i % 20000 == 7) Stacks.Probe(); }
        Stacks.Probe();
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static int Add(int i) { return i & 3; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Throwing(int count)
    {
        int sum = 0;
        for (int i = 0; i < count; i++)
        {
            try { sum += Add(i); if (i % 100 == 99) Stacks.Raise(new A()); }
            catch (A) { sum++; Stacks.Probe(); }
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Deep(int depth)
    {
        if (depth == 0) { Stacks.Probe(); return 0; }
        return 1 + Deep(depth - 1);
    }
}

static class Threads
{
    public static void All()
    {
        for (int i = 0; i < 20; i++)
        {
            Thread thread = new Thread(() => Stacks.Run("thread", () => Between.Thrower(1)));
            thread.Start();
            thread.Join();
        }
        Task[] tasks = new Task[200];
        for (int i = 0; i < tasks.Length; i++) tasks[i] = Asynchronous(i);
        Task.WaitAll(tasks);
        Abort();
        for (int i = 0; i < 5; i++) new Finalized();
        GC.Collect(); GC.WaitForPendingFinalizers();
    }

    static async Task Asynchronous(int i)
    {
        Stacks.Probe();
        try
        {
            await Task.Yield();
            Stacks.Probe();
            await Inner(i);
        }
        catch (A) { Stacks.Probe(); await Task.Delay(1); Stacks.Probe(); }
        finally { Stacks.Probe(); }
        Stacks.Add(i);
    }

    static async Task<int> Inner(int i)
    {
        try { await Task.Yield(); if (i % 2 == 0) Stacks.Raise(new A()); return i; }
        finally { Stacks.Probe(); await Task.Yield(); Stacks.Probe(); }
    }

    // By reflection: the compiler's libraries lack ControlledExecution.Run. An abort that strikes where a managed method returns
    // ends the process, with or without a profiler (.NET 8, 10 and 11). So it is asked for as the thread begins to sleep, and
    // strikes when it wakes up.
    static void Abort()
    {
        MethodInfo run = typeof(object).Assembly.GetType("System.Runtime.ControlledExecution").GetMethod("Run");
        CancellationTokenSource source = new CancellationTokenSource();
        Thread thread = Thread.CurrentThread;
        Thread canceller = new Thread(() =>
        {
            while (!isAboutToSleep || (thread.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Sleep(1);
            source.Cancel();
        });
        canceller.Start();
        Action work = () =>
        {
            try
            {
                try { for (;;) Sleep(); }
                catch (ThreadAbortException) { Stacks.Probe(); Console.WriteLine("aborted"); }
            }
            finally { Stacks.Probe(); }
        };
        Stacks.Probe();
        try { run.Invoke(null, new object[] { work, source.Token }); }
        catch (TargetInvocationException) { Stacks.Probe(); }
        Stacks.Probe();
        canceller.Join();
    }

    static volatile bool isAboutToSleep;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Sleep() { Stacks.Add(0); isAboutToSleep = true; Thread.Sleep(500); }

    class Finalized { ~Finalized() { try { Between.Thrower(1); } catch (A) { Stacks.Probe(); } } }
}
