// Throws exceptions inside of the blocks that handle others.
//
//     Nested [ROUNDS = 1]
//
// Each round runs the methods of `Cases`, and catches what leaves them in `Quiet`. In the end a static constructor
// fails, once.
using System;
using System.Runtime.CompilerServices;

class A : Exception { }
class B : Exception { }

class Broken
{
    static Broken() { Nested.Raise(new A()); }
    public static void Touch() { }
}

static class Cases
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void RethrowUp()
    {
        try { Nested.Raise(new A()); }
        catch (A) { throw; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void RethrowTwice()
    {
        try { RethrowUp(); }
        catch (A) { throw; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void RethrowHere()
    {
        try
        {
            try { Nested.Raise(new A()); }
            catch (A) { throw; }
        }
        catch (A) { }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void RethrowInCatch()
    {
        try { Nested.Raise(new A()); }
        catch (A) { RethrowHere(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void TryInCatch()
    {
        try { Nested.Raise(new A()); }
        catch (A)
        {
            try { Nested.Raise(new B()); }
            catch (B) { }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void FinallyReplaces()
    {
        try { Nested.Raise(new A()); }
        finally { Nested.Raise(new B()); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void FinallyCatches()
    {
        try { Nested.Raise(new A()); }
        finally
        {
            try { Nested.Raise(new B()); }
            catch (B) { }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void FilterThrows()
    {
        try { Nested.Raise(new A()); }
        catch (A) when (Throws()) { }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void FilterCatches()
    {
        try { Nested.Raise(new A()); }
        catch (A) when (Catches()) { }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Throws() { Nested.Raise(new B()); return true; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Catches()
    {
        try { Nested.Raise(new B()); }
        catch (B) { }
        return true;
    }
}

static class Nested
{
    static int Main(string[] args)
    {
        int rounds = args.Length > 0 ? int.Parse(args[0]) : 1;
        for (int round = 0; round < rounds; round++)
        {
            Quiet(Cases.RethrowUp);
            Quiet(Cases.RethrowTwice);
            Quiet(Cases.RethrowHere);
            Quiet(Cases.RethrowInCatch);
            Quiet(Cases.TryInCatch);
            Quiet(Cases.FinallyReplaces);
            Quiet(Cases.FinallyCatches);
            Quiet(Cases.FilterThrows);
            Quiet(Cases.FilterCatches);
        }
        Quiet(Broken.Touch);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Raise(Exception exception) { throw exception; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Quiet(Action action)
    {
        try { action(); }
        catch (Exception) { }
    }
}
