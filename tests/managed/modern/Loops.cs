// target: 8.0
// Methods with hot loops, which the runtime replaces while they run (on-stack replacement). They differ in their frames.
//
//     Loops MILLISECONDS
//
// Each method HotX is called once, by CallsX, which Main calls. It runs until the clock ticks, once per MILLISECONDS.
using System;
using System.Collections.Generic;
using System.Numerics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Loops
{
    const MethodImplOptions Alone = MethodImplOptions.NoInlining;

    /// How often the clock has ticked.
    static volatile int tick;
    static volatile bool isOver;
    static long sum;

    static int Main(string[] args)
    {
        int milliseconds = int.Parse(args[0]);
        // Compiled before, so that the clock does not tick meanwhile.
        Func<long>[] methods =
        {
            CallsSmall, CallsCounted, CallsMany, CallsDoubles, CallsCalling, CallsCallsWithDoubles, CallsHundreds, CallsThousands,
            CallsPages, CallsTry, CallsCatch, CallsTryInLoop, CallsNumber, CallsText, CallsLarge, CallsByValue, CallsReturning,
            CallsArguments, CallsVectors, CallsVectorsAndCalls, CallsInstance, CallsInValue, CallsEndless, CallsEndlessTry, CallsNested,
            CallsThrice, CallsList, CallsLambda, CallsReference, CallsLocals, CallsBranches, CallsDeep,
        };
        Thread clock = new Thread(() =>
        {
            for (; !isOver; tick++) Thread.Sleep(milliseconds);
        });
        clock.Start();
        foreach (Func<long> method in methods) sum += method();
        isOver = true;
        clock.Join();
        CompareFrames();
        Console.WriteLine("methods: {0}", methods.Length);
        return 0;
    }

    sealed class CompareFramesException : Exception { }

    // For a profiler that compares walks from all that was compiled.
    [MethodImpl(Alone)] static void CompareFrames()
    {
        try { throw new CompareFramesException(); }
        catch (CompareFramesException) { }
    }

    // No locals, no calls.
    [MethodImpl(Alone)] static long CallsSmall() { return HotSmall(tick) + 1; }
    [MethodImpl(Alone)] static long HotSmall(int now)
    {
        long value = 1;
        while (tick == now) value = value * 31 + 7;
        return value;
    }

    [MethodImpl(Alone)] static long CallsCounted() { return HotCounted(tick) + 1; }
    [MethodImpl(Alone)] static long HotCounted(int now)
    {
        long value = 1;
        while (tick == now)
            for (int i = 0; i < 1000; i++) value = value * 31 + i;
        return value;
    }

    // All registers are in use.
    [MethodImpl(Alone)] static long CallsMany() { return HotMany(tick, 2, 3, 4) + 1; }
    [MethodImpl(Alone)] static long HotMany(int now, long a, long b, long c)
    {
        long d = a + b, e = b + c, f = c + a, g = d * e, h = e * f, i = f * g, j = 9, k = 10, l = 11;
        while (tick == now)
        {
            a += b * k; b ^= c + l; c += d * 3; d ^= e + a; e += f * 5; f ^= g + b; g += h * 7; h ^= i + c;
            i += j * 11; j ^= k + d; k += l * 13; l ^= a + e;
        }
        return a + b + c + d + e + f + g + h + i + j + k + l;
    }

    [MethodImpl(Alone)] static long CallsDoubles() { return (long)HotDoubles(tick, 1.5) + 1; }
    [MethodImpl(Alone)] static double HotDoubles(int now, double a)
    {
        double b = a * 2, c = a * 3, d = a * 4, e = a * 5, f = a * 6, g = a * 7, h = a * 8;
        while (tick == now)
        {
            a = Math.Sqrt(b + 1); b = Math.Sqrt(c + a); c = Math.Sqrt(d + b); d = Math.Sqrt(e + c);
            e = Math.Sqrt(f + d); f = Math.Sqrt(g + e); g = Math.Sqrt(h + f); h = Math.Sqrt(a + g);
        }
        return a + b + c + d + e + f + g + h;
    }

    // Registers that live across calls.
    [MethodImpl(Alone)] static long Leaf(long value)
    {
        for (int i = 0; i < 20; i++) value = value * 31 + i;
        return value;
    }

    [MethodImpl(Alone)] static long CallsCalling() { return HotCalling(tick, 5) + 1; }
    [MethodImpl(Alone)] static long HotCalling(int now, long a)
    {
        long b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5;
        while (tick == now)
        {
            a = Leaf(b); b += c; c ^= Leaf(d); d += e; e ^= f; f += Leaf(a);
        }
        return a + b + c + d + e + f;
    }

    [MethodImpl(Alone)] static double LeafOfDoubles(double value)
    {
        for (int i = 0; i < 20; i++) value = Math.Sqrt(value + i);
        return value;
    }

    [MethodImpl(Alone)] static long CallsCallsWithDoubles() { return (long)HotCallsWithDoubles(tick, 5, "five") + 1; }
    [MethodImpl(Alone)] static double HotCallsWithDoubles(int now, double a, string text)
    {
        double b = a + 1, c = a + 2;
        long turns = 0;
        while (tick == now)
        {
            a = LeafOfDoubles(b); b = LeafOfDoubles(c); c = a + b + text.Length;
            turns++;
        }
        return a + b + c + turns;
    }

    // Frames of all sizes.
    [StructLayout(LayoutKind.Sequential, Size = 304)] struct Hundreds { public long First; }
    [StructLayout(LayoutKind.Sequential, Size = 3000)] struct Thousands { public long First; }
    [StructLayout(LayoutKind.Sequential, Size = 13000)] struct Pages { public long First; }

    [MethodImpl(Alone)] static void Use<T>(ref T value) where T : struct { sum += Unsafe.SizeOf<T>(); }

    [MethodImpl(Alone)] static long CallsHundreds() { return HotHundreds(tick) + 1; }
    [MethodImpl(Alone)] static long HotHundreds(int now)
    {
        Hundreds local = default;
        Use(ref local);
        while (tick == now) local.First = local.First * 31 + 7;
        return local.First;
    }

    [MethodImpl(Alone)] static long CallsThousands() { return HotThousands(tick) + 1; }
    [MethodImpl(Alone)] static long HotThousands(int now)
    {
        Thousands local = default;
        Use(ref local);
        while (tick == now) local.First += Leaf(local.First);
        return local.First;
    }

    [MethodImpl(Alone)] static long CallsPages() { return HotPages(tick) + 1; }
    [MethodImpl(Alone)] static long HotPages(int now)
    {
        Pages local = default;
        Use(ref local);
        while (tick == now) local.First = local.First * 31 + 7;
        return local.First;
    }

    // Handlers of exceptions.
    [MethodImpl(Alone)] static long CallsTry() { return HotTry(tick) + 1; }
    [MethodImpl(Alone)] static long HotTry(int now)
    {
        long value = 1;
        try
        {
            while (tick == now) value = value * 31 + 7;
        }
        finally
        {
            sum += value;
        }
        return value;
    }

    [MethodImpl(Alone)] static long CallsCatch() { return HotCatch(tick, "text") + 1; }
    [MethodImpl(Alone)] static long HotCatch(int now, string text)
    {
        long value = 1;
        try
        {
            while (tick == now) value = value * text.Length + Leaf(value);
        }
        catch (InvalidOperationException error)
        {
            value = error.Message.Length;
        }
        return value;
    }

    [MethodImpl(Alone)] static long CallsTryInLoop() { return HotTryInLoop(tick) + 1; }
    [MethodImpl(Alone)] static long HotTryInLoop(int now)
    {
        long value = 1;
        while (tick == now)
        {
            try
            {
                for (int i = 0; i < 100; i++) value = value * 31 + i;
            }
            finally
            {
                value ^= 5;
            }
        }
        return value;
    }

    // Generic methods: of their own for value types, shared for classes.
    [MethodImpl(Alone)] static long CallsNumber() { return HotNumber<int>(tick, 5) + 1; }
    [MethodImpl(Alone)] static long HotNumber<T>(int now, T one) where T : struct, IEquatable<T>
    {
        long value = 1;
        while (tick == now) value += one.Equals(default) ? 1 : 2;
        return value;
    }

    [MethodImpl(Alone)] static long CallsText() { return HotText<string>(tick, new[] { "one", "two" }) + 1; }
    [MethodImpl(Alone)] static long HotText<T>(int now, T[] items) where T : class
    {
        long value = 1;
        while (tick == now)
        {
            value += items[value & 1] is T ? 1 : 2;
            if ((value & 0xfff) == 0) value += typeof(T).Name.Length + new T[1].Length;
        }
        return value;
    }

    [MethodImpl(Alone)] static long CallsLarge() { return HotLarge<Hundreds>(tick, default) + 1; }
    [MethodImpl(Alone)] static long HotLarge<T>(int now, T item) where T : struct
    {
        long value = 1;
        while (tick == now)
        {
            value = value * 31 + Unsafe.SizeOf<T>();
            if ((value & 0xffff) == 0) Use(ref item);
        }
        return value;
    }

    // Arguments and results on the stack.
    [MethodImpl(Alone)] static long CallsByValue() { return HotByValue(tick, default) + 1; }
    [MethodImpl(Alone)] static long HotByValue(int now, Hundreds argument)
    {
        while (tick == now) argument.First = argument.First * 31 + 7;
        return argument.First;
    }

    [MethodImpl(Alone)] static long CallsReturning() { return HotReturning(tick).First + 1; }
    [MethodImpl(Alone)] static Hundreds HotReturning(int now)
    {
        Hundreds result = default;
        while (tick == now) result.First = result.First * 31 + Leaf(7);
        return result;
    }

    [MethodImpl(Alone)] static long CallsArguments() { return HotArguments(tick, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1.5, 2.5, "text") + 1; }
    [MethodImpl(Alone)] static long HotArguments(int now, long a, long b, long c, long d, long e, long f, long g, long h, long i, double j, double k, string text)
    {
        while (tick == now)
        {
            a += b; b ^= c; c += d; d ^= e; e += f; f ^= g; g += h; h ^= i; i += a; j = Math.Sqrt(j + k); k += 0.5;
        }
        return a + b + c + d + e + f + g + h + i + (long)j + text.Length;
    }

    // Vectors.
    [MethodImpl(Alone)] static long CallsVectors() { return HotVectors(tick) + 1; }
    [MethodImpl(Alone)] static long HotVectors(int now)
    {
        Vector<float> a = Vector<float>.One, b = a * 2, c = a * 3;
        while (tick == now)
        {
            a = b * c + a; b = Vector.Min(a, c); c = Vector.Max(b, a) * 0.5f;
        }
        return (long)Vector.Dot(a, b + c);
    }

    [MethodImpl(Alone)] static long CallsVectorsAndCalls() { return HotVectorsAndCalls(tick) + 1; }
    [MethodImpl(Alone)] static long HotVectorsAndCalls(int now)
    {
        Vector<double> a = Vector<double>.One, b = a * 2;
        Vector4 c = Vector4.One;
        long value = 1;
        while (tick == now)
        {
            a = b * 0.5 + a; value = Leaf(value); b = Vector.Min(a, b); c = c * 0.25f + Vector4.UnitX;
        }
        return (long)Vector.Dot(a, b) + (long)c.X + value;
    }

    // Methods of objects and of values.
    sealed class Item
    {
        long field = 1;
        [MethodImpl(Alone)] internal long HotInstance(int now)
        {
            while (tick == now) field = field * 31 + 7;
            return field;
        }
    }

    [MethodImpl(Alone)] static long CallsInstance() { return new Item().HotInstance(tick) + 1; }

    struct Value
    {
        long field;
        [MethodImpl(Alone)] internal long HotInValue(int now)
        {
            while (tick == now) field = field * 31 + Leaf(7);
            return field;
        }
    }

    [MethodImpl(Alone)] static long CallsInValue() { return new Value().HotInValue(tick) + 1; }

    // The loop calls a method whose frame is larger than the part of the stack that the sampler copies.
    [MethodImpl(Alone)] static long CallsDeep() { return HotDeep(tick, 7) + 1; }
    [MethodImpl(Alone)] static long HotDeep(int now, long value)
    {
        while (tick == now) value = value * 31 + LeafOnLargeFrame(value);
        return value;
    }

    [MethodImpl(Alone)] static unsafe long LeafOnLargeFrame(long value)
    {
        long* room = stackalloc long[4096];
        room[value & 4095] = value;
        for (int i = 0; i < 100; i++) value = value * 31 + room[value & 4095];
        return value;
    }

    // No return: it ends by an exception.
    sealed class Over : Exception { }

    [MethodImpl(Alone)] static void Ends() { throw new Over(); }

    [MethodImpl(Alone)] static long CallsEndless()
    {
        try
        {
            return HotEndless(tick);
        }
        catch (Over)
        {
            return 1;
        }
    }

    [MethodImpl(Alone)] static long HotEndless(int now)
    {
        long value = 1;
        while (true)
        {
            value = value * 31 + 7;
            if (tick != now) Ends();
        }
    }

    // The same in a block with a handler, whose code returns.
    [MethodImpl(Alone)] static long CallsEndlessTry()
    {
        try
        {
            return HotEndlessTry(tick, "text");
        }
        catch (Over)
        {
            return 1;
        }
    }

    [MethodImpl(Alone)] static long HotEndlessTry(int now, string text)
    {
        long value = 1;
        while (true)
        {
            try
            {
                value = value * 31 + 7;
                if (tick != now) Ends();
            }
            catch (InvalidOperationException error)
            {
                value += error.Message.Length + text.Length;
            }
            finally
            {
                if (value == 5) sum += Leaf(value);
            }
        }
    }

    // A loop that is replaced calls one that is replaced.
    [MethodImpl(Alone)] static long LeafWithLoop(int turns)
    {
        long value = 1;
        for (int i = 0; i < turns; i++) value = value * 31 + i;
        return value;
    }

    [MethodImpl(Alone)] static long CallsNested() { return HotNested(tick) + 1; }
    [MethodImpl(Alone)] static long HotNested(int now)
    {
        long value = 1;
        while (tick == now) value += LeafWithLoop(1000);
        return value;
    }

    // Three loops, one after another, each of which may be replaced by itself.
    [MethodImpl(Alone)] static long CallsThrice() { return HotThrice(tick, 100000) + 1; }
    [MethodImpl(Alone)] static long HotThrice(int now, int turns)
    {
        long value = 1;
        for (int i = 0; i < turns; i++) value = value * 31 + 7;
        for (int i = 0; i < turns; i++) value = value * 37 + Leaf(i);
        while (tick == now) value = value * 41 + 7;
        return value;
    }

    // Code of the framework is inlined, and called.
    [MethodImpl(Alone)] static long CallsList() { return HotList(tick) + 1; }
    [MethodImpl(Alone)] static long HotList(int now)
    {
        List<long> list = new List<long>();
        Dictionary<long, long> counts = new Dictionary<long, long>();
        while (tick == now)
        {
            for (int i = 0; i < 100; i++) list.Add(i);
            foreach (long item in list) counts[item] = item + 1;
            list.Clear();
        }
        return counts.Count;
    }

    [MethodImpl(Alone)] static long CallsLambda() { return HotLambda(tick, value => value * 31 + 7) + 1; }
    [MethodImpl(Alone)] static long HotLambda(int now, Func<long, long> next)
    {
        long value = 1;
        while (tick == now) value = next(value);
        return value;
    }

    // Locals whose addresses are taken stay in the original code's frame.
    [MethodImpl(Alone)] static void Add(ref long value, long more) { value += more; }

    [MethodImpl(Alone)] static long CallsReference() { return HotReference(tick) + 1; }
    [MethodImpl(Alone)] static long HotReference(int now)
    {
        long value = 1, more = 2;
        while (tick == now)
        {
            Add(ref value, more);
            Add(ref more, value);
        }
        return value + more;
    }

    [MethodImpl(Alone)] static long CallsLocals() { return HotLocals(tick) + 1; }
    [MethodImpl(Alone)] static long HotLocals(int now)
    {
        object a = "a", b = "b", c = null, d = new object(), e = "e";
        (long, long, long, long) four = (1, 2, 3, 4);
        (long, object, long) three = (5, a, 6);
        while (tick == now)
        {
            object last = a; a = b; b = c; c = d; d = e; e = last;
            four = (four.Item4 + 1, four.Item1, four.Item2, four.Item3); three = (three.Item3, a, three.Item1 + four.Item1);
        }
        return four.Item1 + three.Item1 + (a == null ? 1 : 0) + (three.Item2 == null ? 1 : 0);
    }

    // Ends in many places.
    [MethodImpl(Alone)] static long CallsBranches() { return HotBranches(tick, 3) + 1; }
    [MethodImpl(Alone)] static long HotBranches(int now, int kind)
    {
        long value = kind;
        while (true)
        {
            switch (value & 7)
            {
                case 0: value = value * 3 + 1; break;
                case 1: value = value * 5 + 2; break;
                case 2: value += Leaf(value) | 1; break;
                case 3: value = value * 7 + 5; break;
                default: value = value / 3 + 4; break;
            }
            if (tick == now) continue;
            if (value == -1) return Leaf(1);
            if (value == -2) return 2;
            return value;
        }
    }
}
