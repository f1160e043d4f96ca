// target: 8.0
// Calls methods that are inlined into their callers, and methods that are not. Every one of them calls Work.Spin in the end, which
// is never inlined: so it is known what stands between a method of Program and Work.Spin, or a method of Twin and Work.Spin.
//
//     InlinedCalls [MILLISECONDS = 2000]
//
// It prints "warm" after a second, and at last for each method of Program the names of the methods between: "NAME: METHOD > METHOD",
// or "NAME:" where the IL does not tell what is between.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Runtime.CompilerServices;

static class Work
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Spin(int n)
    {
        for (int i = 0; i < 4000; i++) n = n * 1664525 + 1013904223;
        return n;
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int Outer(int n) => Inner(n + 1) ^ 5;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int Inner(int n) => Spin(n) + 1;

    // Ends with the call: without inlining it would leave by a jump.
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int Passing(int n) => Spin(n);

    // The same, and it does leave by a jump: it is never inlined, as it has more than 32 parameters. A method that asks not to be
    // inlined makes no such jumps.
    public static int Jumping(
        int n,
        int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11,
        int a12, int a13, int a14, int a15, int a16, int a17, int a18, int a19, int a20, int a21, int a22,
        int a23, int a24, int a25, int a26, int a27, int a28, int a29, int a30, int a31, int a32, int a33) => Spin(n ^ a1 ^ a33);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int Left(int n) => Spin(n) - 1;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int Right(int n) => Spin(n) - 2;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int Either(int n) => (n & 1) == 0 ? Left(n) : Right(n);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static T Kept<T>(T value, ref int n)
    {
        n = Spin(n) + 7;
        return value;
    }
}

struct Point
{
    public int X;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public readonly int Length() => Work.Spin(X) * 3;
}

sealed class Holder<T>
{
    public int Number;

    public int Value
    {
        [MethodImpl(MethodImplOptions.AggressiveInlining)]
        get => Work.Spin(Number) + 2;
    }
}

abstract class Shape { public abstract int Area(int n); }

sealed class Circle : Shape
{
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public override int Area(int n) => Work.Spin(n) + 3;
}

// An enumerator that is a structure, as those of lists are.
struct Numbers
{
    int left;
    public Numbers(int count) { left = count; Current = 0; }
    public readonly Numbers GetEnumerator() => this;
    public int Current { get; private set; }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public bool MoveNext()
    {
        Current = Work.Spin(left);
        return left-- > 0;
    }
}

// The same shapes with nothing inlined.
static class Twin
{
    [MethodImpl(MethodImplOptions.NoInlining)] static int Outer(int n) => Inner(n + 1) ^ 5;
    [MethodImpl(MethodImplOptions.NoInlining)] static int Inner(int n) => Work.Spin(n) + 1;
    [MethodImpl(MethodImplOptions.NoInlining)] static int Left(int n) => Work.Spin(n) - 1;
    [MethodImpl(MethodImplOptions.NoInlining)] public static int Twice(int n) { n += Outer(n); return n; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static int Once(int n) { n += Left(n); return n; }
}

static class Program
{
    static bool never;
    static readonly Func<int, int> lambda = [MethodImpl(MethodImplOptions.NoInlining)] (n) => n + Work.Outer(n);
    static readonly Holder<int> ofNumbers = new Holder<int>();
    static readonly Holder<string> ofTexts = new Holder<string>();
    static readonly Shape shape = new Circle();

    [MethodImpl(MethodImplOptions.NoInlining)] static int Twice(int n) { n += Work.Outer(n); return n; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int Passes(int n) { n += Work.Passing(n); return n; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Jumps(int n)
    {
        n += Work.Jumping(n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2);
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static int OfNumbers(int n) { ofNumbers.Number = n; n += ofNumbers.Value; return n; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int OfTexts(int n) { ofTexts.Number = n; n += ofTexts.Value; return n; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int OfStructure(Point point) { int n = 1; n += point.Length(); return n; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int Generic(int n) { string text = Work.Kept("a", ref n); return n + text.Length; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int Direct(int n) { n += Work.Spin(n); return n; }
    // It may call Left or Right.
    [MethodImpl(MethodImplOptions.NoInlining)] static int OneOfTwo(int n) { n += Work.Either(n); return n; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int Both(int n) { n += Work.Left(n) ^ Work.Right(n); return n; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int Beside(int n) { n += Work.Left(n) ^ Work.Spin(n); return n; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int Branches(int n) { if ((n & 1) == 0) n = Work.Inner(n); else n = Work.Spin(n); return n; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int Stored(int n) { int first = Work.Spin(n); int second = Work.Left(first); return second; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int Overridden(int n) { n += shape.Area(n); return n; }

    // The compiler copies the condition of a loop before the loop, behind a statement that never runs.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Copied(int n, bool never)
    {
        if (never) n += Work.Left(n);
        while ((Work.Spin(n) & 1) == 0) n++;
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CopiedVirtual(int n, bool never)
    {
        if (never) n += Work.Left(n);
        while ((shape.Area(n) & 1) == 0) n++;
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Loop(int n)
    {
        foreach (int number in new Numbers(2)) n ^= number;
        return n;
    }

    static void Main(string[] args)
    {
        int milliseconds = args.Length > 0 ? int.Parse(args[0]) : 2000;
        Stopwatch watch = Stopwatch.StartNew();
        int sum = 0;
        while (watch.ElapsedMilliseconds < 1000) sum += All(sum);
        Console.WriteLine("warm");
        while (watch.ElapsedMilliseconds < milliseconds) sum += All(sum);
        Console.WriteLine("Twice: Work.Outer > Work.Inner");
        Console.WriteLine("Passes: Work.Passing");
        Console.WriteLine("Jumps:");
        Console.WriteLine("OfNumbers: Holder<T>.get_Value");
        Console.WriteLine("OfTexts: Holder<T>.get_Value");
        Console.WriteLine("OfStructure: Point.Length");
        Console.WriteLine("Generic: Work.Kept<T>");
        Console.WriteLine("Loop: Numbers.MoveNext");
        Console.WriteLine("<>c.<.cctor>: Work.Outer > Work.Inner");
        Console.WriteLine("OneOfTwo: Work.Either");
        foreach (string name in new[] { "Direct", "Both", "Beside", "Branches", "Stored", "Overridden", "Copied", "CopiedVirtual" }) Console.WriteLine(name + ":");
        Console.WriteLine("done " + (sum != 42));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int All(int n)
    {
        n = Twice(n); n = Passes(n); n = Jumps(n); n = OfNumbers(n); n = OfTexts(n);
        n = OfStructure(new Point { X = n }); n = Generic(n); n = Direct(n); n = OneOfTwo(n); n = Both(n);
        n = Beside(n); n = Branches(n); n = Stored(n); n = Overridden(n); n = Loop(n); n = lambda(n);
        n = Copied(n, never); n = CopiedVirtual(n, never);
        n = Twin.Twice(n); n = Twin.Once(n);
        return n;
    }
}
