// Throws a known number of exceptions through known frames.
//
//     Throw [ROUNDS = 1]
//
// Each round throws 4: one caught where it is thrown; one that a filter declines, that passes two finally blocks and is
// caught further up; one rethrown once (a second throw) and caught; and so it is caught 3 times, asks 2 filters, and
// runs 3 finally blocks.
using System;
using System.Runtime.CompilerServices;

class LocalException : Exception { public LocalException(string message) : base(message) { } }
class DeepException : Exception { public DeepException(string message) : base(message) { } }

static class Throw
{
    static int thrown, caught, filters, finallies;

    static int Main(string[] args)
    {
        int rounds = args.Length > 0 ? int.Parse(args[0]) : 1;
        for (int round = 0; round < rounds; round++)
        {
            Local();
            Outer();
            Rethrow();
        }
        Console.WriteLine("thrown={0} caught={1} filters={2} finallies={3}", thrown, caught, filters, finallies);
        return thrown == 4 * rounds && caught == 3 * rounds && filters == 2 * rounds && finallies == 3 * rounds ? 0 : 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Local()
    {
        try { thrown++; throw new LocalException("local"); }
        catch (LocalException) { caught++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Outer()
    {
        try { Middle(); }
        catch (DeepException error) when (Filter(error.Message == "deep")) { caught++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Middle()
    {
        try { Inner(); }
        catch (DeepException) when (Filter(false)) { Console.WriteLine("never"); }
        finally { finallies++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Inner()
    {
        try { thrown++; throw new DeepException("deep"); }
        finally { finallies++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Rethrow()
    {
        try
        {
            try { thrown++; throw new LocalException("again"); }
            catch (LocalException) { thrown++; throw; }
            finally { finallies++; }
        }
        catch (LocalException) { caught++; }
    }

    static bool Filter(bool answer) { filters++; return answer; }
}
