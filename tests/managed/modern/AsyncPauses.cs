// target: 10.0
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// Methods that the runtime itself suspends work for some milliseconds and wait for two seconds in all. On .NET 10 they run with
// DOTNET_RuntimeAsync=1 only.
//
//     AsyncPauses
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;

static class AsyncPauses
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Work(int milliseconds) { var watch = Stopwatch.StartNew(); while (watch.ElapsedMilliseconds < milliseconds) ; }
    static async Task Pause(int milliseconds) { Work(5); await Task.Delay(milliseconds); Work(5); }
    static async Task Outer() { for (int i = 0; i < 5; i++) await Pause(100); }
    static async Task<int> Main() { await Outer(); Console.WriteLine("done"); return 0; }
}
