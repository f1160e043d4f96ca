// Loads two programs over and over into contexts that can be unloaded, runs each on a thread of its own, and lets them go.
//
// Arguments: how often, and perhaps the one program to load instead. Prints how many were unloaded.
using System;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;

static class Program
{
    // By reflection, because the compiler's libraries do not have it.
    static readonly Type Context = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);

    static int Main(string[] args)
    {
        int rounds = int.Parse(args[0]), unloaded = 0;
        string directory = Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location);
        TextWriter console = Console.Out;
        Console.SetOut(TextWriter.Null);
        for (int round = 0; round < rounds; round++)
        {
            string program = args.Length > 1 ? args[1] : round % 2 == 0 ? "Generics.dll" : "Throw.dll";
            WeakReference context = Run(Path.Combine(directory, program));
            for (int attempt = 0; context.IsAlive && attempt < 20; attempt++)
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }
            if (!context.IsAlive) unloaded++;
        }
        Console.SetOut(console);
        Console.WriteLine("unloaded " + unloaded + " of " + rounds);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static WeakReference Run(string path)
    {
        object context = Activator.CreateInstance(Context, new object[] { "passing", true });
        Assembly assembly = (Assembly)Context.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        MethodInfo main = assembly.EntryPoint;
        object[] arguments = main.GetParameters().Length == 0 ? null : new object[] { new[] { "1" } };
        Thread thread = new Thread(() => main.Invoke(null, arguments));
        thread.Start();
        thread.Join();
        Context.GetMethod("Unload").Invoke(context, null);
        return new WeakReference(context);
    }
}
