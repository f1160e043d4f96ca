// Does what profilers hear of at the end of a known chain of calls, none of which is inlined.
//
//     Chain
//
// Main -> Outer -> Link<T>.Middle<U> -> Inner, and from Inner: an object is allocated, a method is compiled, a thread is
// made, an exception is thrown. Inner is also reached through native code, where the runtime runs the static constructor
// of Lazy.
using System;
using System.Runtime.CompilerServices;
using System.Threading;

class Marker { public int Number = 1; }
class ChainException : Exception { public ChainException() : base("chain") { } }

static class Link<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Middle<U>(int depth) { return Chain.Inner(depth) + 1; }
}

static class Lazy
{
    public static readonly int Value;
    static Lazy() { Value = Chain.Inner(2); }
}

static class Chain
{
    public static object kept;

    static int Main()
    {
        int sum = Outer(0) + Static();
        Console.WriteLine("sum={0}", sum);
        return sum == 16 ? 0 : 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Outer(int depth) { return Link<string>.Middle<int>(depth) + 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Static() { return Lazy.Value + 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Inner(int depth)
    {
        kept = new Marker();
        int result = depth == 0 ? First(depth) : Second(depth);
        Thread thread = new Thread(OnThread);
        thread.Start();
        thread.Join();
        try { throw new ChainException(); }
        catch (ChainException) { result++; }
        return result;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int First(int depth) { return depth + 5; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Second(int depth) { return depth + 4; }

    static void OnThread() { kept = new Marker(); }
}
