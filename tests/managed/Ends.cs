// Works for some time, and then dies in a way of its own.
//
//     Ends MILLISECONDS abort | throw | exit | overflow | terminate | interrupt | kill | return | wait | limited
//
// abort: Environment.FailFast. throw: an unhandled exception. exit: _exit(3) of the C library. overflow: of the stack. terminate,
// interrupt, kill: sends itself that signal. return: returns 0. wait: waits. limited: from the beginning on its
// files may have 4 KB; returns 0. Before it works it says "ready", and before it dies "dies".
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Ends
{
    [DllImport("libc")] static extern void _exit(int code);
    [DllImport("libc")] static extern int kill(int process, int signal);
    [DllImport("libc")] static extern int setrlimit(int which, ulong[] softAndHard);

    static int Main(string[] args)
    {
        // RLIMIT_FSIZE
        if (args[1] == "limited" && setrlimit(1, new ulong[] { 4096, 4096 }) != 0) return 1;
        Say("ready");
        Work(int.Parse(args[0]));
        Say("dies");
        switch (args[1])
        {
            case "abort": Environment.FailFast("as it was told"); break;
            case "throw": throw new InvalidOperationException("as it was told");
            case "exit": _exit(3); break;
            case "overflow": Deeper(1); break;
            case "terminate": Signal(15); break;
            case "interrupt": Signal(2); break;
            case "kill": Signal(9); break;
            case "wait": new ManualResetEvent(false).WaitOne(); break;
        }
        return 0;
    }

    static void Say(string line)
    {
        Console.WriteLine(line);
        Console.Out.Flush();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Work(int milliseconds)
    {
        Stopwatch watch = Stopwatch.StartNew();
        while (watch.ElapsedMilliseconds < milliseconds) Thread.SpinWait(100);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Deeper(int depth) { return depth + Deeper(depth + 1) + Deeper(depth); }

    static void Signal(int signal)
    {
        kill(Process.GetCurrentProcess().Id, signal);
        new ManualResetEvent(false).WaitOne();
    }
}
