// target: 8.0
// Async methods, of which the compiler makes state machines, work for some milliseconds and wait for two seconds in all.
//
//     MachinePauses [PAUSES LENGTH WORK]
//
// The arguments are the number of waits, and the milliseconds of each and of work before and after it: 5 100 5.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;

static class MachinePauses
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Work(int milliseconds) { var watch = Stopwatch.StartNew(); while (watch.ElapsedMilliseconds < milliseconds) ; }
    static async Task Pause(int milliseconds) { Work(work); await Task.Delay(milliseconds); Work(work); }
    static async Task Outer() { for (int i = 0; i < pauses; i++) await Pause(length); }
    static async Task<int> Main(string[] args)
    {
        if (args.Length > 0) { pauses = int.Parse(args[0]); length = int.Parse(args[1]); work = int.Parse(args[2]); }
        await Outer();
        Console.WriteLine("done");
        return 0;
    }

    // Behind the methods: their state machines are numbered by place.
    static int pauses = 5, length = 100, work = 5;
}
