// Does what it is told on its standard input, a command a line, and answers each with a line: for tools that look at it from
// outside.
//
//     Diagnosed
//
// collect N: collects N times, one after the other. throw N: throws and catches N exceptions. compact N: compacts the heap of
// large objects. allocate N: allocates 10 MB. contend N: has a thread wait for a lock. pool N: has the thread pool do something.
// sleep N: waits for a handle. pid: says its process id. storm: two threads throw and one collects from now on, until calm.
// churn: two threads make dynamic methods, call and drop them, and one collects, until calm. load N: loads Generics.dll into N
// contexts, and runs it in each. unload: unloads them. end, or the end of the input: ends.
using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime;
using System.Runtime.CompilerServices;
using System.Threading;

static class Diagnosed
{
    static volatile bool isStorm;
    static Thread[] storm = new Thread[0];
    static readonly List<object> contexts = new List<object>();

    static int Main()
    {
        Answer("ready");
        for (string line = Console.ReadLine(); line != null && line != "end"; line = Console.ReadLine())
        {
            string[] words = line.Split(' ');
            int count = words.Length > 1 ? int.Parse(words[1]) : 1;
            if (words[0] == "storm") Storm();
            else if (words[0] == "churn") Churn();
            else if (words[0] == "calm") Calm();
            else if (words[0] == "unload") Unload();
            else if (words[0] == "pid") Answer("pid " + System.Diagnostics.Process.GetCurrentProcess().Id);
            else for (int i = 0; i < count; i++)
            {
                switch (words[0])
                {
                    case "collect": GC.Collect(2, GCCollectionMode.Forced, true); break;
                    case "compact": Compact(); break;
                    case "allocate": Allocate(); break;
                    case "contend": Contend(); break;
                    case "load": Load(); break;
                    case "pool": Pool(); break;
                    case "sleep": new ManualResetEvent(false).WaitOne(1); break;
                    default: Throw(); break;
                }
            }
            Answer("done " + line);
        }
        Calm();
        return 0;
    }

    static void Answer(string line)
    {
        Console.WriteLine(line);
        Console.Out.Flush();
    }

    static void Compact()
    {
        byte[] kept = new byte[200000];
        GCSettings.LargeObjectHeapCompactionMode = GCLargeObjectHeapCompactionMode.CompactOnce;
        GC.Collect();
        GC.KeepAlive(kept);
    }

    static void Allocate()
    {
        for (int i = 0; i < 1000; i++) GC.KeepAlive(new byte[10000]);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Load()
    {
        // By reflection, because the compiler's libraries do not have it.
        Type type = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);
        object context = Activator.CreateInstance(type, new object[] { "loaded", true });
        string path = Path.Combine(Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location), "Generics.dll");
        Assembly assembly = (Assembly)type.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        TextWriter console = Console.Out;
        Console.SetOut(TextWriter.Null);
        MethodInfo main = assembly.EntryPoint;
        main.Invoke(null, main.GetParameters().Length == 0 ? null : new object[] { new[] { "1" } });
        Console.SetOut(console);
        contexts.Add(context);
    }

    static void Unload()
    {
        List<WeakReference> going = BeginUnload();
        for (int i = 0; i < 100 && going.Exists(context => context.IsAlive); i++)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static List<WeakReference> BeginUnload()
    {
        List<WeakReference> going = new List<WeakReference>();
        foreach (object context in contexts)
        {
            context.GetType().GetMethod("Unload").Invoke(context, null);
            going.Add(new WeakReference(context));
        }
        contexts.Clear();
        return going;
    }

    static void Contend()
    {
        object gate = new object();
        Thread waiting = new Thread(() => { lock (gate) { } });
        lock (gate)
        {
            waiting.Start();
            while ((waiting.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Yield();
        }
        waiting.Join();
    }

    static void Pool()
    {
        using (CountdownEvent left = new CountdownEvent(50))
        {
            for (int i = 0; i < 50; i++) ThreadPool.QueueUserWorkItem(_ => left.Signal());
            left.Wait();
        }
    }

    static void Storm()
    {
        isStorm = true;
        storm = new Thread[]
        {
            new Thread(() => { while (isStorm) Throw(); }),
            new Thread(() => { while (isStorm) Throw(); }),
            new Thread(() => { while (isStorm) GC.Collect(0); }),
        };
        foreach (Thread thread in storm) thread.Start();
    }

    static void Churn()
    {
        isStorm = true;
        storm = new Thread[]
        {
            new Thread(() => { while (isStorm) CallDynamic(); }),
            new Thread(() => { while (isStorm) CallDynamic(); }),
            new Thread(() => { while (isStorm) { GC.Collect(); GC.WaitForPendingFinalizers(); } }),
        };
        foreach (Thread thread in storm) thread.Start();
    }

    // Counts down in a method that is made for it.
    static void CallDynamic()
    {
        DynamicMethod loop = new DynamicMethod("Loop", typeof(void), new[] { typeof(int) }, typeof(Diagnosed).Module);
        ILGenerator il = loop.GetILGenerator();
        Label again = il.DefineLabel();
        il.MarkLabel(again);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Sub);
        il.Emit(OpCodes.Starg_S, (byte)0);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Brtrue, again);
        il.Emit(OpCodes.Ret);
        ((Action<int>)loop.CreateDelegate(typeof(Action<int>)))(1000000);
    }

    static void Calm()
    {
        isStorm = false;
        foreach (Thread thread in storm) thread.Join();
        storm = new Thread[0];
    }

    static void Throw()
    {
        try { throw new InvalidOperationException("asked for"); }
        catch (InvalidOperationException) { }
    }
}
