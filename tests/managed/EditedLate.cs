// Loops long enough for its code to be replaced while it runs, and calls a method for the first time in the middle. The
// compiler loads a type of its own for it. Prints a sum.
using System;
using System.Runtime.CompilerServices;

static class EditedLate
{
    static int Main()
    {
        Console.WriteLine("sum {0}", Loop(300000));
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Loop(int turns)
    {
        Read read = default(Read);
        for (int i = 0; i < turns; i++)
        {
            if (i == 100) Called();
            read.Sum += i % 7;
        }
        return read.Sum;
    }

    struct Read
    {
        public int Sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Called()
    {
        Console.WriteLine("in the middle");
    }
}
