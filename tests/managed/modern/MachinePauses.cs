// target: 8.0
// Async methods, of which the compiler makes state machines, work for some milliseconds and wait for two seconds in all.
//
//     MachinePauses
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;

static class MachinePauses
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Work(int milliseconds) { var watch = Stopwatch.StartNew(); while (watch.ElapsedMilliseconds < milliseconds) ; }
    static async Task Pause(int milliseconds) { Work(5); await Task.Delay(milliseconds); Work(5); }
    static async Task Outer() { for (int i = 0; i < 5; i++) await Pause(100); }
    static async Task<int> Main() { await Outer(); Console.WriteLine("done"); return 0; }
}
