// Calls its methods on four threads while a profiler rewrites them. Beside them it collects, compiles, and loads, runs and unloads
// a program.
//
// A method returns the text that it has, or one that the profiler has put in its place. It goes on until Done returns "yes", which
// only a profiler can make true, or for five minutes. By then the profiler has taken everything back: it prints what the methods
// return, and how many answers were none of these texts.
using System;
using System.Diagnostics;
using System.IO;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Threading;

class Held<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public string Text(T value) { return value == null ? "null" : "plain"; }
}

static class Rewrites
{
    static bool isOver;
    static long rounds, wrong;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Done() { return "no"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string TextA(int a, string b) { return "plain"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string TextB(double a, object b) { return b == null ? "null" : "plain"; }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static string TextInlined() { return "plain"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string TextCaller() { return TextInlined(); }

    // Long enough for on-stack replacement now and then.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static string TextLoop(int turns)
    {
        string text = "";
        for (int i = 0; i < turns; i++) text = "plain";
        return text;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string TextThrows(int number)
    {
        try
        {
            if (number % 64 == 0) throw new InvalidOperationException("plain");
            return "plain";
        }
        finally
        {
            Interlocked.Increment(ref rounds);
        }
    }

    static string Caught(int number)
    {
        try { return TextThrows(number); }
        catch (InvalidOperationException e) when (e.Message != null) { return e.Message; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string TextDeep(int depth) { return depth == 0 ? "plain" : TextDeep(depth - 1); }

    static void See(string text)
    {
        if (text != "plain" && text != "first" && text != "second" && text != "third") Interlocked.Increment(ref wrong);
    }

    static string[] Texts(int number)
    {
        return new[]
        {
            TextA(number, "b"), TextB(number, ""), TextCaller(), TextLoop(number % 2000 + 1), Caught(number),
            TextDeep(number % 16), new Held<int>().Text(number), new Held<string>().Text("s"), new Held<object>().Text(""),
        };
    }

    static void Work()
    {
        for (int i = 1; !Volatile.Read(ref isOver); i++)
            foreach (string text in Texts(i)) See(text);
    }

    static void Collect()
    {
        while (!Volatile.Read(ref isOver))
        {
            GC.Collect(0);
            Thread.Sleep(1);
            GC.Collect();
            Thread.Sleep(1);
        }
    }

    static int Compiled(int number)
    {
        var method = new DynamicMethod("made", typeof(int), Type.EmptyTypes);
        ILGenerator il = method.GetILGenerator();
        il.Emit(OpCodes.Ldc_I4, number);
        il.Emit(OpCodes.Ret);
        return ((Func<int>)method.CreateDelegate(typeof(Func<int>)))();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Pass(string program)
    {
        Type contexts = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);
        object context = Activator.CreateInstance(contexts, new object[] { "passing", true });
        string path = Path.Combine(Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location), program);
        var assembly = (Assembly)contexts.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        MethodInfo main = assembly.EntryPoint;
        main.Invoke(null, main.GetParameters().Length == 0 ? null : new object[] { new[] { "1" } });
        contexts.GetMethod("Unload").Invoke(context, null);
    }

    static void Load()
    {
        for (int i = 0; !Volatile.Read(ref isOver); i++)
        {
            Pass(i % 2 == 0 ? "Generics.dll" : "Throw.dll");
            if (Compiled(i) != i) Interlocked.Increment(ref wrong);
            Thread.Sleep(5);
        }
    }

    static int Main()
    {
        TextWriter console = Console.Out;
        Console.SetOut(TextWriter.Null);
        ThreadStart[] all = { Work, Work, Work, Work, Collect, Load };
        var threads = new Thread[all.Length];
        for (int i = 0; i < threads.Length; i++)
        {
            threads[i] = new Thread(all[i]);
            threads[i].Start();
        }
        Stopwatch watch = Stopwatch.StartNew();
        while (Done() != "yes" && watch.Elapsed < TimeSpan.FromMinutes(5)) Thread.Sleep(1);
        Volatile.Write(ref isOver, true);
        foreach (Thread thread in threads) thread.Join();
        Console.SetOut(console);
        Console.WriteLine("{0}, {1} wrong", string.Join(" ", Texts(1)), wrong);
        return rounds > 0 ? 0 : 1;
    }
}
