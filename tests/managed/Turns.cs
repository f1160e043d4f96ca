// Does a fixed amount of work in turns: each calls First, Second, Third and Fourth once, which take 40, 30, 20 and 10 % of it.
//
//     Turns [TURNS = 100] [PERCENT = 100]
//
// A turn has 400 pieces of work of some 20 microseconds. First does PERCENT of its own pieces: with 110 it is slower by a tenth, and
// the others do the same work as before.
using System;
using System.Runtime.CompilerServices;

static class Turns
{
    static int Main(string[] args)
    {
        int turns = args.Length > 0 ? int.Parse(args[0]) : 100, percent = args.Length > 1 ? int.Parse(args[1]) : 100;
        long sum = 0;
        for (int turn = 0; turn < turns; turn++) sum += Turn(percent);
        Console.WriteLine("done {0}", sum != 42);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Turn(int percent) { return First(160 * percent / 100) + Second(120) + Third(80) + Fourth(40); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long First(int pieces)
    {
        long sum = 1;
        for (int piece = 0; piece < pieces; piece++) sum += Burn(20000);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Second(int pieces)
    {
        long sum = 2;
        for (int piece = 0; piece < pieces; piece++) sum += Burn(20000);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Third(int pieces)
    {
        long sum = 3;
        for (int piece = 0; piece < pieces; piece++) sum += Burn(20000);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Fourth(int pieces)
    {
        long sum = 4;
        for (int piece = 0; piece < pieces; piece++) sum += Burn(20000);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Burn(int turns)
    {
        long value = turns;
        for (int i = 0; i < turns; i++) value = value * 6364136223846793005 + 1442695040888963407;
        return value;
    }
}
