// Calls two methods, one of them of a module that can be unloaded, until a profiler makes Done return something else.
//
//     Requests
//
// First it has the methods of a large module of the framework compiled, so that a profiler finds code to replace.
using System;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;

public static class Requests
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Done() { return 0; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Prepared() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Hot() { return 1; }

    static readonly Type Contexts =
        Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);

    // The methods that are neither generic nor of a generic type. Most are precompiled.
    static int Prepare(Assembly assembly)
    {
        const BindingFlags All = BindingFlags.Public | BindingFlags.NonPublic | BindingFlags.Static
            | BindingFlags.Instance | BindingFlags.DeclaredOnly;
        int prepared = 0;
        foreach (Type type in assembly.GetTypes())
        {
            if (type.ContainsGenericParameters) continue;
            foreach (MethodInfo method in type.GetMethods(All))
            {
                if (method.IsAbstract || method.ContainsGenericParameters) continue;
                try
                {
                    method.MethodHandle.GetFunctionPointer();
                    RuntimeHelpers.PrepareMethod(method.MethodHandle);
                    prepared++;
                }
                catch (PlatformNotSupportedException) { }
            }
        }
        return prepared;
    }

    static Func<int> Passing()
    {
        object context = Activator.CreateInstance(Contexts, new object[] { "passing", true });
        string own = typeof(Requests).Assembly.Location;
        var assembly = (Assembly)Contexts.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { own });
        return (Func<int>)assembly.GetType("Requests").GetMethod("Hot").CreateDelegate(typeof(Func<int>));
    }

    static int Main()
    {
        // Anything of it, so that it is loaded.
        Assembly xml = Assembly.Load("System.Private.Xml");
        Console.WriteLine("prepared {0}", Prepare(xml) > 5000);
        Func<int> passing = Passing();
        int own = Hot(), other = passing();
        // So that the profiler sees that it is told about suspensions.
        GC.Collect();
        Prepared();
        for (int i = 0; i < 300000 && Done() == 0; i++)
        {
            // A method is compiled again for the next tier after thirty calls.
            for (int j = 0; j < 50; j++)
            {
                own = Hot();
                other = passing();
            }
            Thread.Sleep(1);
        }
        Console.WriteLine("own {0}, passing {1}", own, other);
        return 0;
    }
}
