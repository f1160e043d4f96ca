// Loads and unloads collectible assemblies on one thread, collects on another, and meanwhile makes classes, arrays and code that
// stay on a third: some over the core library's types, some over types of an assembly in a context that is never unloaded.
//
// Argument: how many collectible contexts. Prints how many were unloaded, and how many classes the third thread made.
using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;

struct Pair<A, B>
{
    public A First;
    public B Second;
}

interface IWork { int Work(); }

/// Compiled anew for each pair of value types.
class Holder<A, B> : IWork
{
    readonly Pair<A, B>[] pairs = new Pair<A, B>[2];

    public int Work()
    {
        pairs[1].First = default(A);
        return Count(pairs) + Twice(pairs.Length);
    }

    static int Count<C>(C[] all) { return all.Length; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Twice(int number) { return 2 * number; }
}

static class Program
{
    // By reflection, because the compiler's libraries do not have it.
    static readonly Type Context = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);
    static readonly Type[] Values =
    {
        typeof(bool), typeof(byte), typeof(sbyte), typeof(short), typeof(ushort), typeof(char), typeof(int), typeof(uint),
        typeof(long), typeof(ulong), typeof(float), typeof(double), typeof(decimal), typeof(DateTime), typeof(TimeSpan),
        typeof(Guid), typeof(IntPtr), typeof(DateTimeOffset), typeof(ConsoleKey), typeof(DayOfWeek),
    };

    static volatile bool isOver;

    static int Main(string[] args)
    {
        int contexts = int.Parse(args[0]), unloaded = 0, made = 0;
        string directory = Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location);
        TextWriter console = Console.Out;
        Console.SetOut(TextWriter.Null);
        Assembly staying = Load(Path.Combine(directory, "Plug.dll"));

        Thread collector = new Thread(() => { while (!isOver) { GC.Collect(); GC.WaitForPendingFinalizers(); } });
        Thread maker = new Thread(() => made = Make(staying.GetType("Key")));
        collector.Start();
        maker.Start();
        List<WeakReference> all = new List<WeakReference>();
        for (int at = 0; at < contexts || maker.IsAlive; at++)
        {
            all.Add(Run(Path.Combine(directory, at % 3 == 0 ? "Generics.dll" : at % 3 == 1 ? "Plug.dll" : "Throw.dll")));
        }
        maker.Join();
        for (int attempt = 0; attempt < 1000 && all.Exists(context => context.IsAlive); attempt++) Thread.Sleep(5);
        isOver = true;
        collector.Join();
        foreach (WeakReference context in all) if (!context.IsAlive) unloaded++;
        Console.SetOut(console);
        Console.WriteLine((unloaded == all.Count ? "unloaded all" : "unloaded " + unloaded + " of " + all.Count) + ", made " + made);
        GC.KeepAlive(staying);
        return 0;
    }

    /// Each class is new while modules go.
    static int Make(Type key)
    {
        int made = 0;
        List<Type> types = new List<Type>(Values);
        types.Add(key);
        foreach (Type first in types)
        {
            foreach (Type second in types)
            {
                Type holder = typeof(Holder<,>).MakeGenericType(first, second);
                ((IWork)Activator.CreateInstance(holder)).Work();
                Array.CreateInstance(holder, 1, 1);
                made++;
            }
        }
        return made;
    }

    static Assembly Load(string path)
    {
        object context = Activator.CreateInstance(Context, new object[] { "staying", true });
        Assembly assembly = (Assembly)Context.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        assembly.EntryPoint.Invoke(null, assembly.EntryPoint.GetParameters().Length == 0 ? null : new object[] { new[] { "1" } });
        return assembly;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static WeakReference Run(string path)
    {
        object context = Activator.CreateInstance(Context, new object[] { "passing", true });
        Assembly assembly = (Assembly)Context.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        MethodInfo main = assembly.EntryPoint;
        main.Invoke(null, main.GetParameters().Length == 0 ? null : new object[] { new[] { "1" } });
        Context.GetMethod("Unload").Invoke(context, null);
        return new WeakReference(context);
    }
}
