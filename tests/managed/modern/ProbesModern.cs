// target: 8.0
// Methods of today's C#: spans, references, iterators, async methods. What it prints is the same with and without probes.

using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;

readonly record struct Point(int X, double Y);

ref struct Window
{
    Span<int> items;

    public Window(Span<int> items) => this.items = items;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public ref int First() => ref items[0];
}

interface IShape
{
    static abstract int Sides { get; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    int Twice() => 2 * Area();

    int Area();
}

struct Square : IShape
{
    public int Side;

    public static int Sides { [MethodImpl(MethodImplOptions.NoInlining)] get => 4; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public readonly int Area() => Side * Side;
}

static class ProbesModern
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Span<int> Slice(Span<int> all, int from) => all[from..];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ReadOnlySpan<char> Trimmed(ReadOnlySpan<char> text) => text.Trim();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ref int At(int[] items, int index) => ref items[index];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Point Moved(in Point point, int by) => point with { X = point.X + by };

    [MethodImpl(MethodImplOptions.NoInlining)]
    static (int, string) Tuple(int? maybe, (int A, string B) both) => (maybe ?? both.A, both.B);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe int Pointed(int* pointer, delegate*<int, int> function) => function(*pointer);

    static int Increment(int number) => number + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe int Stack(int size)
    {
        int* items = stackalloc int[size];
        for (int i = 0; i < size; i++) items[i] = i;
        return items[size - 1];
    }

    static IEnumerable<int> Numbers(int to)
    {
        try
        {
            for (int i = 0; i < to; i++) yield return i;
        }
        finally
        {
            Console.WriteLine("iterated");
        }
    }

    static async Task<int> Later(int number)
    {
        await Task.Yield();
        try
        {
            await Task.Run(() => throw new InvalidOperationException("in a task"));
        }
        catch (InvalidOperationException e) when (e.Message.Length > 3)
        {
            number += e.Message.Length;
        }
        return number;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int SidesOf<T>(T shape) where T : IShape => T.Sides + shape.Twice();

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.Synchronized)]
    static int Locked(DateTime time, Guid id, decimal money) => time.Year + (int)money;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Filtered(int n)
    {
        try
        {
            try
            {
                if (n > 0) throw new ArgumentException("a");
            }
            catch (ArgumentException) when (n > 1)
            {
                return true;
            }
        }
        catch (Exception)
        {
            throw;
        }
        return false;
    }

    static unsafe int Main()
    {
        int[] items = { 1, 2, 3, 4 };
        Console.WriteLine(Slice(items, 1)[0]);
        Console.WriteLine(Trimmed("  trimmed ").ToString());
        At(items, 2) = 30;
        new Window(items).First() = 10;
        Console.WriteLine("{0} {1}", items[0], items[2]);
        Console.WriteLine(Moved(new Point(1, 2.5), 4));
        Console.WriteLine("{0} {1}", Tuple(null, (5, "five")), Tuple(6, (5, "five")));
        int pointed = 41;
        Console.WriteLine(Pointed(&pointed, &Increment));
        Console.WriteLine(Stack(50));
        foreach (int number in Numbers(3)) Console.WriteLine(number);
        Console.WriteLine(Later(1).Result);
        Console.WriteLine(SidesOf(new Square { Side = 3 }));
        Console.WriteLine(Locked(new DateTime(2026, 1, 2), Guid.Empty, 2.5m));
        Console.WriteLine(Filtered(0));
        Console.WriteLine(Filtered(2));
        try
        {
            Filtered(1);
        }
        catch (ArgumentException e)
        {
            Console.WriteLine(e.StackTrace!.Split('\n').Length);
        }
        return 0;
    }
}
