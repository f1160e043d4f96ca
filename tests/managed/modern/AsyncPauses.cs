// target: 10.0
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// Methods that the runtime itself suspends work for some milliseconds and wait for two seconds in all. On .NET 10 they run with
// DOTNET_RuntimeAsync=1 only.
//
//     AsyncPauses [PAUSES LENGTH WORK]
//
// The arguments are the number of waits, and the milliseconds of each and of work before and after it: 5 100 5.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;

static class AsyncPauses
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
