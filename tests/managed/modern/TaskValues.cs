// target: 10.0
// Methods that return tasks, with arguments and results, before and after the framework's first methods that the runtime itself
// suspends: on .NET 11 reading and writing files are such.
//
//     TaskValues
using System;
using System.IO;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;

static class TaskValues
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Task<int> PlainBefore(int a) => Task.FromResult(a + 1);
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Task<int> PlainAfter(int a) => Task.FromResult(a + 2);
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Task<T> Generic<T>(T a) => Task.FromResult(a);
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Sync(int a, string b) => a + b.Length;

    static async Task<int> AsyncBefore(int a) { await Task.Delay(a); return a; }
    static async Task<int> AsyncAfter(int a) { await Task.Delay(a); return a; }
    static async ValueTask<string> ValueAfter(int a) { await Task.Delay(a); return "v" + a; }

    static async Task<int> Main() {
        int sum = await PlainBefore(1) + await AsyncBefore(2);
        var file = Path.GetTempFileName();
        await File.WriteAllTextAsync(file, "hello");
        var text = await File.ReadAllTextAsync(file);
        File.Delete(file);
        sum += await PlainAfter(3) + await AsyncAfter(4) + (await ValueAfter(5)).Length + Sync(6, text);
        sum += await Generic(7) + (await Generic("eight")).Length;
        Console.WriteLine($"sum {sum}");
        return 0;
    }
}
