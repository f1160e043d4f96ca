// target: 8.0
// option: -debug:embedded
// Works at known lines in known shares, for a time. Says `ready` when all its code is optimised.
//
//     HotLines [MILLISECONDS = 2000]
//
// Of the time in Loops, 70 % and 30 % are at the lines that end in `// 70` and `// 30`: each is a loop of the same work.
// Of the time in Calls, as much is at those that end in `// calls 70` and `// calls 30`, in calls of the same method.
// Their results go into a field: a local variable lets the compiler make one statement of both calls, and then the runtime's
// map has them at the line of the last one.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;

static class HotLines
{
    const int Turns = 4000;
    static ulong field = 1;

    static int Main(string[] args)
    {
        int milliseconds = args.Length > 0 ? int.Parse(args[0]) : 2000;
        ulong sum = 1;
        // Code gets its last tier when it has been called often, and some time is over.
        Stopwatch watch = Stopwatch.StartNew();
        while (watch.ElapsedMilliseconds < 600) sum = Works(sum, 10);
        Console.WriteLine("ready");
        watch.Restart();
        while (watch.ElapsedMilliseconds < milliseconds) sum = Works(sum, Turns);
        Console.WriteLine("done {0}", sum != 0);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Works(ulong sum, int turns)
    {
        Calls(turns);
        return Loops(sum, turns) ^ field;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Loops(ulong sum, int turns)
    {
        for (int i = 0; i < 7 * turns; i++) sum = sum * 6364136223846793005 + (uint)i; // 70
        sum ^= 42;
        for (int i = 0; i < 3 * turns; i++) sum = sum * 6364136223846793005 + (uint)i; // 30
        return sum | 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Calls(int turns)
    {
        field = Burns(field, 7 * turns); // calls 70
        field = Burns(field | 1, 3 * turns); // calls 30
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Burns(ulong sum, int turns)
    {
        for (int i = 0; i < turns; i++) sum = sum * 6364136223846793005 + (uint)i; // burns
        return sum;
    }
}
