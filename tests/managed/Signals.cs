// What a profiler that sends signals must leave alone. Each job prints what comes of it.
//
//     Signals storm [THREADS = 64] [MILLISECONDS = 2000]    null references, exceptions, work and sleeps, on many threads at once
//     Signals flood [SIGNALS = 100000]                      the same on 64 threads, which get so many SIGURGs that nobody asked for
//     Signals fork [TIMES = 20]                             forks in the middle of work; each child gets a SIGURG and ends
//     Signals handler                                       tells who handles SIGURG
//     Signals spawn [TIMES = 20]                            starts itself as a child, which prints a line, and reads that
//     Signals exec                                          becomes another program, in the middle of work on other threads
//     Signals overflow                                      overflows its stack
//     Signals replace [MILLISECONDS = 1000]                 ignores SIGURG from the half of the time on
//     Signals own [MILLISECONDS = 1000]                     handles SIGURG by managed code from the half of the time on, and dies
//                                                           if one comes in the middle of managed code
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Signals
{
    [DllImport("libc.so.6", EntryPoint = "signal")]
    static extern IntPtr Handle(int signal, IntPtr handler);

    [DllImport("libc.so.6", EntryPoint = "execv", SetLastError = true)]
    static extern int Become(string path, string[] arguments);

    [DllImport("libc.so.6", EntryPoint = "syscall")]
    static extern long Send(long number, long process, long thread, long signal);

    [DllImport("libc.so.6", EntryPoint = "getpid")]
    static extern int Self();

    [DllImport("libc.so.6", EntryPoint = "waitpid", SetLastError = true)]
    static extern int Await(int child, out int status, int options);

    // A forked child has this thread alone, so it must not wait for others: it stays out of the runtime.
    [DllImport("libc.so.6", EntryPoint = "fork"), SuppressGCTransition]
    static extern int Fork();

    [DllImport("libc.so.6", EntryPoint = "raise"), SuppressGCTransition]
    static extern int Raise(int signal);

    [DllImport("libc.so.6", EntryPoint = "_exit"), SuppressGCTransition]
    static extern void Leave(int code);

    const int Urgent = 23;
    static volatile bool isOver;
    static long wrong;

    static int Main(string[] args)
    {
        int number = args.Length > 1 ? int.Parse(args[1]) : 0;
        switch (args[0])
        {
            case "storm": return Storm(number > 0 ? number : 64, args.Length > 2 ? int.Parse(args[2]) : 2000);
            case "flood": return Flood(number > 0 ? number : 100000);
            case "fork": return Forks(number > 0 ? number : 20);
            case "handler":
                Work(100);
                Console.WriteLine("handler: {0:x}", Handle(Urgent, new IntPtr(1)).ToInt64());
                return 0;
            case "child": Console.WriteLine("the child"); return 5;
            case "spawn": return Spawn(number > 0 ? number : 20);
            case "exec":
                for (int i = 0; i < 2; i++) Start(() => { while (true) Work(1); });
                Work(2000);
                Become("/bin/echo", new[] { "echo", "another program", null });
                return 1;
            case "overflow":
                Start(() => { while (true) Work(1); });
                return Deeper(1) > 0 ? 1 : 2;
            case "replace":
                Thread worker = Start(() => { while (!isOver) Work(1); });
                Thread.Sleep(number / 2);
                Handle(Urgent, new IntPtr(1));
                Thread.Sleep(number / 2);
                isOver = true;
                worker.Join();
                Console.WriteLine("replaced");
                return 0;
            case "own":
                Handler handler = signal => Interlocked.Increment(ref heard);
                Thread busy = Start(() => { while (!isOver) Work(1); });
                Thread.Sleep(number / 2);
                Handle(Urgent, Marshal.GetFunctionPointerForDelegate(handler));
                Thread.Sleep(number / 2);
                isOver = true;
                busy.Join();
                GC.KeepAlive(handler);
                Console.WriteLine("heard {0}", heard);
                return 0;
            default: return 2;
        }
    }

    delegate void Handler(int signal);

    static int heard;

    static Thread Start(ThreadStart run)
    {
        Thread thread = new Thread(run) { IsBackground = true };
        thread.Start();
        return thread;
    }

    static int Storm(int threads, int milliseconds)
    {
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++)
        {
            int kind = i % 4;
            all[i] = Start(() => { while (!isOver) Once(kind); });
        }
        Thread.Sleep(milliseconds);
        isOver = true;
        foreach (Thread thread in all) thread.Join();
        Console.WriteLine("wrong: {0}", wrong);
        return wrong == 0 ? 0 : 1;
    }

    static int Flood(int signals)
    {
        Start(() =>
        {
            long sendsToThread = RuntimeInformation.ProcessArchitecture == Architecture.Arm64 ? 131 : 234;
            int process = Self();
            while (signals > 0)
                foreach (string task in System.IO.Directory.GetDirectories("/proc/self/task"))
                    if (Send(sendsToThread, process, long.Parse(System.IO.Path.GetFileName(task)), Urgent) == 0) signals--;
            isOver = true;
        });
        Thread[] all = new Thread[64];
        for (int i = 0; i < all.Length; i++)
        {
            int kind = i % 4;
            all[i] = Start(() => { while (!isOver) Once(kind); });
        }
        foreach (Thread thread in all) thread.Join();
        Console.WriteLine("wrong: {0}", wrong);
        return wrong == 0 ? 0 : 1;
    }

    static int Forks(int times)
    {
        foreach (string name in new[] { "Fork", "Raise", "Leave" })
            Marshal.Prelink(typeof(Signals).GetMethod(name, System.Reflection.BindingFlags.NonPublic | System.Reflection.BindingFlags.Static));
        for (int i = 0; i < 4; i++) Start(() => { while (true) Work(1); });
        for (int i = 0; i < times; i++)
        {
            int status;
            int child = Forked();
            if (child < 0 || Await(child, out status, 0) != child || status != 7 << 8) return 1;
            Work(10);
        }
        Console.WriteLine("{0} forks", times);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Forked()
    {
        int child = Fork();
        if (child == 0)
        {
            Raise(Urgent);
            Leave(7);
        }
        return child;
    }

    static void Once(int kind)
    {
        switch (kind)
        {
            case 0: for (int i = 0; i < 10; i++) if (Null(null) != -1) Interlocked.Increment(ref wrong); break;
            case 1: if (Thrown(20) != 20) Interlocked.Increment(ref wrong); break;
            case 2: if (Work(100) != Work(100)) Interlocked.Increment(ref wrong); break;
            default:
                Thread thread = new Thread(() => { if (Null(null) != -1) Interlocked.Increment(ref wrong); });
                thread.Start();
                Thread.Sleep(1);
                thread.Join();
                break;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Null(string text)
    {
        try { return text.Length; }
        catch (NullReferenceException) { return -1; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Thrown(int depth)
    {
        try { if (depth == 0) throw new InvalidOperationException(); return Thrown(depth - 1) + 1; }
        catch (InvalidOperationException) { return depth; }
        finally { if (depth < 0) wrong++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static double Work(int turns)
    {
        double sum = 0;
        for (int i = 0; i < turns * 1000; i++) sum += Math.Sqrt(i) * 1.5;
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Deeper(int depth) { return Deeper(depth + 1) + depth % 3; }

    static int Spawn(int times)
    {
        Start(() => { while (true) Work(1); });
        string host = Process.GetCurrentProcess().MainModule.FileName;
        string app = System.Reflection.Assembly.GetExecutingAssembly().Location;
        for (int i = 0; i < times; i++)
        {
            ProcessStartInfo start = new ProcessStartInfo(host, "exec \"" + app + "\" child")
                { RedirectStandardOutput = true, UseShellExecute = false };
            start.EnvironmentVariables.Remove("CORECLR_ENABLE_PROFILING");
            using (Process child = Process.Start(start))
            {
                string text = child.StandardOutput.ReadToEnd();
                child.WaitForExit();
                if (text != "the child\n" || child.ExitCode != 5) { Console.WriteLine("{0}: {1}", child.ExitCode, text); return 1; }
            }
        }
        Console.WriteLine("{0} children", times);
        return 0;
    }
}

namespace System.Runtime.InteropServices
{
    // The runtime goes by the name. The compiler's libraries are older.
    [AttributeUsage(AttributeTargets.Method)]
    sealed class SuppressGCTransitionAttribute : Attribute { }
}
