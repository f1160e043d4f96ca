// target: 10.0
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// Methods that the runtime itself suspends await methods that only return tasks, generic ones too: each of the latter has a second
// form then, for these callers, with the same metadata. On .NET 10 they run with DOTNET_RuntimeAsync=1 only.
//
//     TaskForms
using System;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;

class Box<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static Task<T> Plain(T a) => Task.FromResult(a);
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static Task<U> Both<U>(T a, U b) => Task.FromResult(b);
    [MethodImpl(MethodImplOptions.NoInlining)]
    public virtual Task<T> Virtual(T a) => Task.FromResult(a);
    public static async Task<T> Suspended(T a) { await Task.Yield(); return a; }
}

static class TaskForms
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Task<int> Plain(int a) => Task.FromResult(a + 1);
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Task<int> Slow(int a) => Task.Delay(5).ContinueWith(_ => a);
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Task<T> Generic<T>(T a) => Task.FromResult(a);
    [MethodImpl(MethodImplOptions.NoInlining)]
    static ValueTask<string> Value(int a) => new("x" + a);
    static async Task<int> Suspended(int a) { await Task.Yield(); return a; }

    static async Task<int> Main() {
        int sum = 0;
        for (int i = 0; i < 3; i++) {
            sum += await Plain(1) + await Slow(2) + await Generic(3) + (await Generic("ab")).Length + (await Value(4)).Length;
            sum += await Suspended(5) + await Box<int>.Plain(6) + await Box<int>.Suspended(7) + (await Box<string>.Plain("abc")).Length;
            sum += await new Box<int>().Virtual(8) + (await new Box<string>().Virtual("abcd")).Length;
            sum += await Box<string>.Both("a", 9) + (await Box<int>.Both(10, "abcde")).Length + (await Box<string>.Both("a", "abcdef")).Length;
            var suspended = Suspended(11);
            var slow = Slow(12);
            sum += await suspended + await slow;
        }
        Console.WriteLine($"sum {sum}");
        return 0;
    }
}
