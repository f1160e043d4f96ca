// target: 8.0
// generators: yes
// What today's C# makes of a program: async methods and streams, iterators, records, spans, ref structs, static abstract
// members, lambdas, pattern matching, and a regular expression that a source generator has compiled.
//
// Each part prints one line, which does not depend on the machine.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Numerics;
using System.Text.RegularExpressions;
using System.Threading.Tasks;

Console.WriteLine($"async {await Modern.SumLater(10)}");
Console.WriteLine($"stream {await Modern.SumStream(10)}");
Console.WriteLine($"iterator {string.Join(' ', Modern.Squares(5))}");
Console.WriteLine($"record {new Point(1, 2) with { Y = 3 }}");
Console.WriteLine($"span {Modern.Longest("a bcd ef")}");
Console.WriteLine($"static abstract {Modern.Sum([1.5, 2.5])} {Modern.Sum([1, 2])}");
Console.WriteLine($"lambda {Modern.Compose(x => x + 1, x => x * 2)(3)}");
Console.WriteLine($"pattern {Modern.Describe(new Point(0, 5))} {Modern.Describe(new[] { 1, 2, 3 })} {Modern.Describe("x")}");
Console.WriteLine($"regex {Modern.Words().Count("one two  three")}");
Console.WriteLine($"filter {Modern.Filtered(3)}");
return 0;

record Point(int X, int Y);

ref struct Splitter(ReadOnlySpan<char> text)
{
    ReadOnlySpan<char> rest = text;
    public ReadOnlySpan<char> Current { get; private set; } = default;

    public bool MoveNext()
    {
        if (rest.IsEmpty)
            return false;
        int end = rest.IndexOf(' ');
        Current = end < 0 ? rest : rest[..end];
        rest = end < 0 ? default : rest[(end + 1)..];
        return true;
    }
}

static partial class Modern
{
    public static async Task<int> SumLater(int count)
    {
        int sum = 0;
        for (int i = 1; i <= count; i++) {
            await Task.Yield();
            sum += i;
        }
        return sum;
    }

    static async IAsyncEnumerable<int> Stream(int count)
    {
        for (int i = 1; i <= count; i++) {
            await Task.Yield();
            yield return i;
        }
    }

    public static async Task<int> SumStream(int count)
    {
        int sum = 0;
        await foreach (int i in Stream(count))
            sum += i;
        return sum;
    }

    public static IEnumerable<int> Squares(int count)
    {
        for (int i = 1; i <= count; i++)
            yield return i * i;
    }

    public static string Longest(ReadOnlySpan<char> text)
    {
        ReadOnlySpan<char> longest = default;
        var words = new Splitter(text);
        while (words.MoveNext())
            if (words.Current.Length > longest.Length)
                longest = words.Current;
        return longest.ToString();
    }

    public static T Sum<T>(ReadOnlySpan<T> numbers) where T : INumber<T>
    {
        T sum = T.Zero;
        foreach (T number in numbers)
            sum += number;
        return sum;
    }

    public static Func<int, int> Compose(Func<int, int> first, Func<int, int> second) => x => second(first(x));

    public static string Describe(object thing) => thing switch
    {
        Point { X: 0, Y: var y } => $"axis {y}",
        int[] and [var first, .., var last] => $"{first} to {last}",
        string { Length: 1 } s => $"letter {s}",
        _ => "other",
    };

    [GeneratedRegex(@"\w+")]
    public static partial Regex Words();

    public static int Filtered(int count)
    {
        int caught = 0;
        for (int i = 0; i < count; i++) {
            try {
                throw new InvalidOperationException(i.ToString());
            } catch (InvalidOperationException e) when (e.Message != "1") {
                caught++;
            } catch (InvalidOperationException) {
            }
        }
        return caught;
    }
}
