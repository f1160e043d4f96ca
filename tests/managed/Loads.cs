// Loads assemblies, says so by an exception, and waits until a profiler has Done return something else, or for five minutes.
//
//     Loads [NAME]...
using System;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;

static class Loads
{
    static int Main(string[] args)
    {
        foreach (string name in args) Assembly.Load(name);
        try { throw new InvalidOperationException("loaded"); }
        catch (InvalidOperationException) { }
        DateTime begin = DateTime.UtcNow;
        while (Done() != "yes" && (DateTime.UtcNow - begin).TotalMinutes < 5) Thread.Sleep(1);
        Console.WriteLine("done: {0}", Done());
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Done() { return "no"; }
}
