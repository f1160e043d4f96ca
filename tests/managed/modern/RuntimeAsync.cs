// target: 10.0
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// Awaits of all kinds, in methods that the runtime itself suspends. On .NET 10 they run with DOTNET_RuntimeAsync=1 only. Results
// of every kind come back from them, beside the continuation of a method that has been suspended.
//
//     RuntimeAsync [ROUNDS = 20] [hold]
//
// With `hold` a hundred methods are suspended when it says `ready`, until there is a line of input.
using System;
using System.Collections.Generic;
using System.Threading.Tasks;

static class RuntimeAsync
{
    record struct Pair(long A, double B);
    record struct Big(long A, long B, long C, string D);

    static async Task<int> Deep(int depth) {
        if (depth == 0) { await Task.Yield(); return 1; }
        return await Deep(depth - 1) + 1;
    }
    static async Task<int> Ready(int a) { await Task.CompletedTask; return a + 1; }
    static async ValueTask<long> Value(long a) { if (a % 7 == 0) await Task.Yield(); return a * 3; }
    static async Task<double> Double(double a) { if ((long)a % 5 == 0) await Task.Yield(); return a * 0.5; }
    static async Task<Pair> Both(long a) { if (a % 3 == 0) await Task.Yield(); return new(a, a * 1.5); }
    static async Task<Big> Large(long a) { if (a % 4 == 0) await Task.Yield(); return new(a, a + 1, a + 2, "d" + a); }
    static async Task<string> Text(int a) { if (a % 2 == 0) await Task.Delay(0); return "t" + a; }
    static async Task Throws(int a) { if (a % 2 == 0) await Task.Yield(); if (a % 3 == 0) throw new InvalidOperationException("t" + a); }
    static async Task Nothing(int a) { if (a % 2 == 0) await Task.Yield(); }
    static Task<int> Plain(int a) => Ready(a);
    static async Task<T> Generic<T>(T a, int n) { if (n % 2 == 0) await Task.Yield(); return a; }
    static async IAsyncEnumerable<int> Stream(int n) { for (int i = 0; i < n; i++) { if (i % 2 == 0) await Task.Yield(); yield return i; } }

    static async Task<long> Round(int i) {
        long sum = await Deep(i % 10) + await Ready(i) + await Value(i) + (long)await Double(i);
        var both = await Both(i); sum += both.A + (long)both.B;
        var large = await Large(i); sum += large.A + large.B + large.C + large.D.Length;
        sum += (await Text(i)).Length + await Plain(i) + (await Generic("x", i)).Length + await Generic(i, i) + (long)await Generic(2.5, i);
        await Nothing(i);
        try { await Throws(i); } catch (InvalidOperationException e) { sum += e.Message.Length; } finally { await Nothing(i); }
        await foreach (var j in Stream(4)) sum += j;
        return sum;
    }

    static async Task<int> Held(Task gate, int[] kept) { await gate; return kept.Length; }

    static async Task<int> Main(string[] args) {
        int rounds = args.Length > 0 ? int.Parse(args[0]) : 20;
        long sum = 0;
        for (int i = 0; i < rounds; i++) sum += await Round(i);
        var all = new Task<long>[4];
        for (int t = 0; t < 4; t++) all[t] = Task.Run(async () => { long s = 0; for (int i = 0; i < rounds; i++) s += await Round(i); return s; });
        foreach (var s in await Task.WhenAll(all)) sum += s;
        if (args.Length > 1) {
            var gate = new TaskCompletionSource();
            var held = new Task<int>[100];
            for (int i = 0; i < held.Length; i++) held[i] = Held(gate.Task, new int[i]);
            Console.WriteLine("ready");
            Console.ReadLine();
            gate.SetResult();
            foreach (var length in await Task.WhenAll(held)) sum += length;
        }
        Console.WriteLine($"sum {sum}");
        return 0;
    }
}
