// Methods that the compiler inlines into a loop, before any of them is ever compiled by itself: run it without tiers.

using System;
using System.Runtime.CompilerServices;

static class Inlines
{
    static int Small(int number) => number * 3 + 1;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static int Asked(int number, int other)
    {
        if (number > other)
        {
            number -= other;
        }
        else
        {
            number += 7 * other;
        }
        return number ^ 0x55;
    }

    static int Calling(int number) => Small(number) - Small(number + 1);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Loop(int count, Version version)
    {
        int sum = 0;
        for (int i = 0; i < count; i++)
        {
            sum = Small(sum) + Asked(sum, i) + Calling(i) + version.MinorRevision;
        }
        return sum;
    }

    static void Main(string[] args)
    {
        Console.WriteLine(Loop(int.Parse(args[0]), new Version(3, 1, 4, 15)));
    }
}
