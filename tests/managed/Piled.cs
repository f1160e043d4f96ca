// Loads a program (Plug.dll) into many contexts that can be unloaded, runs it, and lets them go without waiting for their end: whoever
// delays unloading makes them pile up.
//
//     Piled CONTEXTS
//
// Waits for the end of all of them, prints their number, and on standard error the largest number of mappings of the process (0 where
// the system does not tell).
using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;

static class Piled
{
    // By reflection, because the compiler's libraries do not have it.
    static readonly Type Context = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);

    static int Main(string[] args)
    {
        int contexts = int.Parse(args[0]), mappings = 0;
        string plug = Path.Combine(Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location), "Plug.dll");
        TextWriter console = Console.Out;
        Console.SetOut(TextWriter.Null);
        List<WeakReference> alive = new List<WeakReference>();
        for (int number = 1; number <= contexts; number++)
        {
            alive.Add(Run(plug));
            if (number % 20 != 0) continue;
            GC.Collect();
            alive.RemoveAll(one => !one.IsAlive);
            mappings = Math.Max(mappings, Mappings());
        }
        while (alive.Exists(one => one.IsAlive))
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
        Console.SetOut(console);
        Console.WriteLine("contexts=" + contexts);
        Console.Error.WriteLine("mappings=" + mappings);
        return 0;
    }

    static int Mappings()
    {
        try { return File.ReadAllLines("/proc/self/maps").Length; }
        catch (IOException) { return 0; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static WeakReference Run(string path)
    {
        object context = Activator.CreateInstance(Context, new object[] { "passing", true });
        Assembly assembly = (Assembly)Context.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        assembly.EntryPoint.Invoke(null, null);
        Context.GetMethod("Unload").Invoke(context, null);
        return new WeakReference(context);
    }
}
