// Has loaded and compiled much, and does what it is told on its standard input, a command a line:
//
//     Growing
//
// grow: from now on a thread loads assemblies that can be unloaded, runs them and lets them go; another starts and ends threads;
// two run code that has not run before. churn: from now on two threads load such assemblies by the dozen and let them all go.
// calm: they stop. end, or the end of the input: ends.
using System;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;

struct Even<T> { public T Value; }
struct Odd<T> { public T Value; }

static class Growing
{
    // By reflection, because the compiler's libraries do not have it.
    static readonly Type Context = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);
    static readonly string Folder = Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location);
    static volatile bool isGrowing;
    static volatile int depth;
    static int sum;
    static Thread[] growth = new Thread[0];

    static int Main()
    {
        TextWriter console = Console.Out;
        Console.SetOut(TextWriter.Null);
        for (int bits = 0; bits < 200; bits++) Next<int>(bits, 8);
        Load("Plug.dll");
        using (ManualResetEvent over = new ManualResetEvent(false))
        {
            Thread waiting = new Thread(() => over.WaitOne()) { Name = "waiting" };
            waiting.Start();
            Answer(console, "ready");
            for (string line = Console.ReadLine(); line != null && line != "end"; line = Console.ReadLine())
            {
                if (line == "grow") Grow();
                else if (line == "churn") Churn();
                else Calm();
                Answer(console, "done " + line);
            }
            Calm();
            over.Set();
            waiting.Join();
        }
        return 0;
    }

    static void Answer(TextWriter console, string line)
    {
        console.WriteLine(line);
        console.Flush();
    }

    static void Grow()
    {
        isGrowing = true;
        growth = new Thread[]
        {
            new Thread(() => { while (isGrowing) LoadAndUnload(); }),
            new Thread(() => { while (isGrowing) StartAndJoin(); }),
            new Thread(() => Compile(1000)),
            new Thread(() => Compile(1001)),
        };
        foreach (Thread thread in growth) thread.Start();
    }

    static void Churn()
    {
        isGrowing = true;
        growth = new Thread[] { new Thread(LoadAndUnloadDozens), new Thread(LoadAndUnloadDozens) };
        foreach (Thread thread in growth) thread.Start();
    }

    static void LoadAndUnloadDozens()
    {
        while (isGrowing)
        {
            for (int number = 0; number < 12; number++) Load("Plug.dll");
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
    }

    static void Calm()
    {
        isGrowing = false;
        foreach (Thread thread in growth) thread.Join();
        growth = new Thread[0];
    }

    static void StartAndJoin()
    {
        Thread thread = new Thread(() => Interlocked.Increment(ref sum));
        thread.Start();
        thread.Join();
    }

    static void Compile(int first)
    {
        for (int bits = first; isGrowing; bits += 2) Next<int>(bits, 12);
    }

    // Each pattern of bits is a type of its own, and each type has code of its own.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Next<T>(int bits, int left)
    {
        if (left == 0) depth++;
        else if ((bits & 1) == 0) Next<Even<T>>(bits >> 1, left - 1);
        else Next<Odd<T>>(bits >> 1, left - 1);
    }

    static void LoadAndUnload()
    {
        WeakReference context = Load("Plug.dll");
        for (int attempt = 0; context.IsAlive && attempt < 20; attempt++)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static WeakReference Load(string file)
    {
        object context = Activator.CreateInstance(Context, new object[] { "growing", true });
        string path = Path.Combine(Folder, file);
        Assembly assembly = (Assembly)Context.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        assembly.EntryPoint.Invoke(null, null);
        Context.GetMethod("Unload").Invoke(context, null);
        return new WeakReference(context);
    }
}
