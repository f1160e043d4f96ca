// Prints what a few methods return while a profiler has them compiled anew and reverts them.
//
//     ReJit [alone]
//
// A call of a method AskFor... is the sign for the profiler; then the program waits until a method returns something else,
// twenty seconds at most. With "alone" it does not wait. Caller inlines Inlined only where
// the compiler optimizes at once: with TieredCompilation off.
using System;
using System.Runtime.CompilerServices;
using System.Threading;

static class ReJit
{
    // A call through it is not inlined.
    static readonly Func<int> Direct = Inlined;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Answer() { return 41; }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static int Inlined() { return 51; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Caller() { return Inlined(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int NeverAsked() { return 61; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void AskForAnswer() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void AskForInlined() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void AskForInliners() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void AskForRevert() { }

    static bool alone;

    static void Until(Func<bool> changed)
    {
        for (int i = 0; !alone && i < 4000 && !changed(); i++) Thread.Sleep(5);
    }

    static void Print(string when)
    {
        Console.WriteLine("{0}: {1} {2} {3} {4}", when, Answer(), Direct(), Caller(), NeverAsked());
    }

    static int Main(string[] args)
    {
        alone = args.Length > 0;
        Print("before");
        AskForAnswer();
        Until(() => Answer() != 41);
        Print("answer");
        AskForInlined();
        Until(() => Direct() != 51);
        Print("inlined");
        AskForInliners();
        Until(() => Caller() != 51);
        Print("inliners");
        AskForRevert();
        Until(() => Answer() == 41 && Direct() == 51 && Caller() == 51);
        Print("reverted");
        return 0;
    }
}
