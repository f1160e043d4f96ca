// Throws exceptions that meet filters, on several threads, while another thread collects and compacts without pause.
//
//     Filters KIND MILLISECONDS
//
// An exception that a filter is asked about must be the one that was thrown, wherever a collection has moved it. Each KIND of
// job has another filter, or has something happen on the way to it:
//
//     when         catch … when
//     generic      catch (T) in code that is shared between instantiations, of which the compiler makes a filter
//     invoke       the filter of MethodInfo.Invoke
//     activator    the filter of Activator.CreateInstance
//     nested       a filter that throws and catches, before it says yes
//     same         a filter that throws and catches the exception that it is asked about
//     escaping     a filter that an exception leaves, which says no, and then another
//     firstchance  code that throws and catches before the filter is asked: a handler of FirstChanceException
//     wrapped      a filter of a thrown object that is not an exception
//     all          each of these in turn
//
// At the end it prints how many jobs were right and how many wrong; and how many exceptions are still there that nobody has,
// after some of each kind on a thread that goes on: "wrong=0 kept=0 right=N".
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Threading;

class Told : Exception
{
    public readonly long Value;
    public Told(long value)
    {
        Value = value;
        if (Filters.Watched != null) Filters.Watched.Add(new WeakReference(this));
    }
}

class Other : Exception { }

class Shared<T> where T : Exception
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Catch(long value)
    {
        try { Filters.Throw(value); return -1; }
        catch (T caught) { return ((Told)(object)caught).Value; }
    }
}

class Failing
{
    [ThreadStatic] public static long Value;
    public Failing() { throw new Told(Value); }
}

static class Filters
{
    const int Throwers = 3;
    static readonly string[] Kinds =
        { "when", "generic", "invoke", "activator", "nested", "same", "escaping", "firstchance", "wrapped" };
    [ThreadStatic] static bool interrupts;
    /// What the main thread has made of late, if it watches.
    [ThreadStatic] public static List<WeakReference> Watched;
    static long right, wrong;
    static volatile bool ends;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Throw(long value)
    {
        // Something for collections to move the exception over.
        for (int i = 0; i < 4; i++) GC.KeepAlive(new byte[100 + value % 100]);
        throw new Told(value);
    }

    static long When(long value)
    {
        try { Throw(value); return -1; }
        catch (Told told) when (told.Value == value) { return told.Value; }
    }

    static readonly MethodInfo thrower = typeof(Filters).GetMethod("Throw");

    static long Invoke(long value)
    {
        try { thrower.Invoke(null, new object[] { value }); return -1; }
        catch (TargetInvocationException error) { return ((Told)error.InnerException).Value; }
    }

    static long Activate(long value)
    {
        Failing.Value = value;
        try { Activator.CreateInstance(typeof(Failing)); return -1; }
        catch (TargetInvocationException error) { return ((Told)error.InnerException).Value; }
    }

    static bool ThrowsAndCatches(Exception thrown)
    {
        try { throw thrown; }
        catch (Exception caught) { return caught == thrown; }
    }

    static bool Escapes() { throw new Other(); }

    static long Nested(long value)
    {
        try { Throw(value); return -1; }
        catch (Told told) when (ThrowsAndCatches(new Other()) && told.Value != value) { return -2; }
        catch (Told told) when (told.Value == value) { return told.Value; }
    }

    static long Same(long value)
    {
        try { Throw(value); return -1; }
        catch (Told told) when (ThrowsAndCatches(told) && told.Value != value) { return -2; }
        catch (Told told) when (told.Value == value) { return told.Value; }
    }

    static long Escaping(long value)
    {
        try { Throw(value); return -1; }
        catch (Told) when (Escapes()) { return -2; }
        catch (Told told) when (told.Value == value) { return told.Value; }
    }

    static long FirstChance(long value)
    {
        interrupts = true;
        try { return When(value); }
        finally { interrupts = false; }
    }

    static void Interrupt(object sender, System.Runtime.ExceptionServices.FirstChanceExceptionEventArgs told)
    {
        if (!interrupts) return;
        interrupts = false;
        ThrowsAndCatches(new Other());
        interrupts = true;
    }

    static Func<object, bool> wrapped;

    // C# throws exceptions only. An assembly without the attribute that asks for wrapped objects gets them as they are.
    static Func<object, bool> EmitWrapped()
    {
        AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(new AssemblyName("Plain"), AssemblyBuilderAccess.Run);
        TypeBuilder type = assembly.DefineDynamicModule("Plain").DefineType("Plain", TypeAttributes.Public);
        MethodBuilder method = type.DefineMethod(
            "Catches", MethodAttributes.Public | MethodAttributes.Static, typeof(bool), new[] { typeof(object) });
        ILGenerator il = method.GetILGenerator();
        LocalBuilder result = il.DeclareLocal(typeof(bool));
        il.BeginExceptionBlock();
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Throw);
        il.BeginExceptFilterBlock();
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ceq);
        il.BeginCatchBlock(null);
        il.Emit(OpCodes.Pop);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Stloc, result);
        il.EndExceptionBlock();
        il.Emit(OpCodes.Ldloc, result);
        il.Emit(OpCodes.Ret);
        MethodInfo made = type.CreateType().GetMethod("Catches");
        return (Func<object, bool>)made.CreateDelegate(typeof(Func<object, bool>));
    }

    static long Wrapped(long value)
    {
        object thing = "thing " + value;
        if (Watched != null) Watched.Add(new WeakReference(thing));
        for (int i = 0; i < 4; i++) GC.KeepAlive(new byte[100 + value % 100]);
        return wrapped(thing) ? value : -1;
    }

    static long Do(int kind, long value)
    {
        switch (Kinds[kind])
        {
            case "when": return When(value);
            case "generic": return Shared<Told>.Catch(value);
            case "invoke": return Invoke(value);
            case "activator": return Activate(value);
            case "nested": return Nested(value);
            case "same": return Same(value);
            case "escaping": return Escaping(value);
            case "firstchance": return FirstChance(value);
            default: return Wrapped(value);
        }
    }

    static void Work(int number, int kind)
    {
        // Enough of it stays for collections to have something to do, and for the exceptions to lie behind something.
        object[] kept = new object[2000];
        for (long value = number; !ends; value += Throwers)
        {
            kept[value % kept.Length] = new byte[value % 300];
            int now = kind < 0 ? (int)(value % Kinds.Length) : kind;
            long answer;
            try { answer = Do(now, value); }
            catch (Exception) { answer = -3; }
            if (answer == value) Interlocked.Increment(ref right);
            else Interlocked.Increment(ref wrong);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void DoAll()
    {
        for (int kind = 0; kind < Kinds.Length; kind++)
            for (long value = 1; value <= 3; value++) if (Do(kind, value) != value) wrong++;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ThrowDeeper(int depth)
    {
        if (depth > 0) return ThrowDeeper(depth - 1) + 1;
        try { throw new Other(); }
        catch (Other) { return 0; }
    }

    static int Kept()
    {
        Watched = new List<WeakReference>();
        DoAll();
        // The runtime may have the last one. Thrown deeper than the others, it is not a reason to forget them.
        ThrowDeeper(200);
        int kept = 0;
        GC.Collect();
        foreach (WeakReference one in Watched) if (one.IsAlive) kept++;
        return Watched.Count < 3 * Kinds.Length ? -1 : kept;
    }

    static int Main(string[] args)
    {
        int kind = Array.IndexOf(Kinds, args[0]);
        wrapped = EmitWrapped();
        AppDomain.CurrentDomain.FirstChanceException += Interrupt;
        Thread[] threads = new Thread[Throwers];
        for (int i = 0; i < Throwers; i++)
        {
            int number = i;
            threads[i] = new Thread(() => Work(number, kind));
            threads[i].Start();
        }
        int start = Environment.TickCount;
        while (Environment.TickCount - start < int.Parse(args[1])) { GC.Collect(0, GCCollectionMode.Forced, true, true); Thread.Sleep(0); }
        ends = true;
        foreach (Thread thread in threads) thread.Join();
        int kept = Kept();
        Console.WriteLine("wrong={0} kept={1} right={2}", wrong, kept, right);
        return 0;
    }
}
