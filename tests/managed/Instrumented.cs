// Calls a few methods over and over, while a profiler instruments them, and prints what each has returned, in order.
//
//     Instrumented [attached]
//
// A value is noted when it differs from the one before. It goes on until Done returns "yes", which only a profiler can make
// true, or for five minutes. With "attached" it prints a line when the profiler may be attached.
using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Threading;

class Box<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public string Name() { return "box of " + typeof(T).Name; }
}

abstract class Shape
{
    public abstract string Name();
}

static class Instrumented
{
    // A call through it is not inlined.
    static readonly Func<string> Direct = Inlined;
    static readonly Dictionary<string, List<string>> Seen = new Dictionary<string, List<string>>();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Done() { return "no"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Tick() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Greet() { return "hello"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Both() { return "one"; }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static string Inlined() { return "inlined"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Caller() { return Inlined(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Broken() { return "whole"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Unsound() { return "as it was"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Kept() { return "kept"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Never() { return "never"; }

    static void Note(string name, string value)
    {
        List<string> values;
        if (!Seen.TryGetValue(name, out values)) Seen.Add(name, values = new List<string>());
        if (values.Count == 0 || values[values.Count - 1] != value) values.Add(value);
    }

    static string Failing()
    {
        try { return Broken(); }
        catch (Exception e) { return e.GetType().Name; }
    }

    static void Round()
    {
        Note("Greet", Greet());
        Note("Both", Both());
        Note("Direct", Direct());
        Note("Caller", Caller());
        Note("Broken", Failing());
        Note("Unsound", Unsound());
        Note("Kept", Kept());
        Note("Box", new Box<int>().Name() + ", " + new Box<string>().Name() + ", " + new Box<object>().Name());
        Tick();
    }

    // A module that the application makes.
    static Type Built()
    {
        var name = new AssemblyName("BuiltAtRunTime");
        AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(name, AssemblyBuilderAccess.Run);
        TypeBuilder type = assembly.DefineDynamicModule("Built").DefineType("BuiltType", TypeAttributes.Public);
        MethodBuilder method =
            type.DefineMethod("BuiltMethod", MethodAttributes.Public | MethodAttributes.Static, typeof(string), null);
        ILGenerator il = method.GetILGenerator();
        il.Emit(OpCodes.Ldstr, "built");
        il.Emit(OpCodes.Ret);
        return type.CreateType();
    }

    // Loads a program into a context that can be unloaded.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static object Load(string program, bool isKept)
    {
        Type contexts = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);
        object context = Activator.CreateInstance(contexts, new object[] { "passing", true });
        string path = Path.Combine(Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location), program);
        var assembly = (Assembly)contexts.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        if (assembly.EntryPoint == null) throw new Exception("no program");
        if (isKept) return assembly;
        contexts.GetMethod("Unload").Invoke(context, null);
        return new WeakReference(context);
    }

    static int Main(string[] args)
    {
        if (args.Length > 0) Console.WriteLine("ready");
        string built = (string)Built().GetMethod("BuiltMethod").Invoke(null, null);
        object kept = Load("Generics.dll", true);
        var passing = (WeakReference)Load("Throw.dll", false);
        for (int i = 0; i < 100 && passing.IsAlive; i++)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
        for (int i = 0; i < 300000 && Done() != "yes"; i++)
        {
            Round();
            Thread.Sleep(1);
        }
        foreach (string name in new[] { "Greet", "Both", "Direct", "Caller", "Broken", "Unsound", "Kept", "Box" })
            Console.WriteLine("{0}: {1}", name, string.Join(" > ", Seen[name]));
        Console.WriteLine("{0}, unloaded {1}", built, !passing.IsAlive);
        GC.KeepAlive(kept);
        return 0;
    }
}
