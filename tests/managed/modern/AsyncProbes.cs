// target: 10.0
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// Methods that the runtime itself suspends, with arguments and results of several kinds. It calls them, throws, waits until a
// profiler has changed Ready, and calls them again. On .NET 10 they run with DOTNET_RuntimeAsync=1 only.
//
//     AsyncProbes [wait]
using System;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

class AsyncProbes
{
    record struct Pair(int A, string B);

    readonly int number;
    AsyncProbes(int number) => this.number = number;

    static async Task<int> Add(int a, string b) { await Task.Delay(5); return a + b.Length; }
    static async ValueTask<double> Half(double a) { if (a > 1) await Task.Yield(); return a / 2; }
    static async Task<string> Text(int a) { if (a % 2 == 0) await Task.Yield(); return "t" + a; }
    static async Task<Pair> Both(int a, string b) { await Task.Yield(); return new(a, b); }
    static async Task Nothing(int a) { if (a > 0) await Nothing(a - 1); else await Task.Yield(); }
    static async Task<T> Generic<T>(T a) { await Task.Yield(); return a; }
    async Task<int> Instance(int a) { await Task.Yield(); return a + number; }
    static async Task Throws(int a) { await Task.Yield(); if (a > 0) throw new InvalidOperationException("on purpose"); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Ready() => "no";

    static async Task Round() {
        Console.WriteLine(await Add(3, "four"));
        Console.WriteLine(await Half(1) + await Half(5));
        Console.WriteLine(await Text(1) + await Text(2));
        Console.WriteLine(await Both(6, "seven"));
        await Nothing(2);
        Console.WriteLine(await Generic(8) + await Generic("nine"));
        Console.WriteLine(await new AsyncProbes(10).Instance(11));
        try { await Throws(1); } catch (InvalidOperationException e) { Console.WriteLine(e.Message); }
    }

    static async Task<int> Main(string[] args) {
        await Round();
        if (args.Length == 0) return 0;
        for (int wait = 0; wait < 60000 && Ready() == "no"; wait++) Thread.Sleep(5);
        await Round();
        Console.WriteLine("again");
        return 0;
    }
}
