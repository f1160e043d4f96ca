// Calls methods of all kinds while a profiler has probes in them: what it prints is the same with and without.
//
//     Probes            each once
//     Probes storm      many times on several threads, with collections beside them
//     Probes leave      returns from Main while threads still call
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;

enum Shade : byte { Dark = 1, Light = 2 }

struct Pair
{
    public int X;
    public string Y;

    public Pair(int x) { X = x; Y = "y" + x; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Plus(int more) { X += more; return X; }
}

struct Big
{
    public long A, B, C, D;
    public double E;
    public string F;
}

class Cell<T>
{
    public T Value;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public T Put(T value, int number, List<T> list, T[] array, KeyValuePair<T, int> pair)
    {
        T old = Value;
        Value = value;
        return old;
    }
}

class Node
{
    public readonly int Value;
    public readonly Node Next;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public Node(int value, Node next) { Value = value; Next = next; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public virtual int Sum() { return Value + (Next == null ? 0 : Next.Sum()); }
}

static class Probes
{
    static int marks;

    // Seen by its probe: so what the program does stands among what the probes see.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Mark(string what) { marks++; return true; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Nothing() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Add(int a, int b) { return a + b; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static double Mix(float f, double d, long l, sbyte b, bool t, char c, ushort u) { return f + d + l + b + c + u; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Join(string a, object b, int[] c) { return a + (b == null) + c.Length; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Shade Other(Shade shade) { return shade == Shade.Dark ? Shade.Light : Shade.Dark; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Big Grow(Big big, int by)
    {
        big.A += by;
        big.F += by;
        return big;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Swap(ref int a, ref string b, out long c)
    {
        c = a;
        a = b.Length;
        b = "swapped";
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static T Same<T>(T value, int number) { return value; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l, int m, int n, int o, int p, int q)
    {
        return a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Several(int n)
    {
        if (n == 0) return 10;
        if (n == 1) return 11;
        while (n > 5)
        {
            n--;
            if (n == 7) return 77;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Throws(int n)
    {
        try
        {
            Mark("body");
            if (n > 0) throw new InvalidOperationException("thrown " + n);
        }
        finally
        {
            Mark("inner finally");
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Handles(int n)
    {
        try
        {
            return Throws(n);
        }
        catch (InvalidOperationException e) when (Mark("filter of the caller"))
        {
            Mark("handler of the caller");
            return e.Message.Length;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Replaces()
    {
        try
        {
            throw new InvalidOperationException();
        }
        finally
        {
            Throws(2);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void OnlyThrows() { throw new NotSupportedException("always"); }

    // A string that says its number, in a struct and alone.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Check(int number, string text, Pair pair) { return string.Concat("r", text); }

    static string Try(Func<object> what)
    {
        try
        {
            return Convert.ToString(what());
        }
        catch (Exception e)
        {
            return e.GetType().Name + " " + e.Message.Length + " " + e.StackTrace.Split('\n').Length;
        }
    }

    static int Once()
    {
        Nothing();
        Console.WriteLine(Add(2, -3));
        Console.WriteLine(Mix(1.5f, 2.25, 1L << 40, -8, true, 'x', 65535));
        Console.WriteLine(Join("text", null, new int[3]));
        Console.WriteLine(Join("", "o", new int[0]));
        Console.WriteLine(Other(Shade.Dark));
        Big big = Grow(new Big { A = 1, B = 2, C = 3, D = 4, E = 0.5, F = "f" }, 10);
        Console.WriteLine("{0} {1} {2} {3} {4} {5}", big.A, big.B, big.C, big.D, big.E, big.F);
        Pair pair = new Pair(7);
        Console.WriteLine("{0} {1} {2}", pair.Plus(3), pair.X, pair.Y);
        int a = 5;
        string b = "four";
        long c;
        Swap(ref a, ref b, out c);
        Console.WriteLine("{0} {1} {2}", a, b, c);
        Console.WriteLine("{0} {1} {2}", Same(1.5, 1), Same("s", 2), Same(new Pair(3), 3).Y);
        Console.WriteLine(new Cell<int>().Put(1, 2, null, null, new KeyValuePair<int, int>(1, 2)));
        Console.WriteLine(new Cell<string> { Value = "old" }.Put("new", 3, new List<string>(), new string[0], new KeyValuePair<string, int>("k", 2)));
        Console.WriteLine(Many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17));
        Console.WriteLine("{0} {1} {2} {3}", Several(0), Several(1), Several(3), Several(9));
        Console.WriteLine(Fib(5));
        Console.WriteLine(new Node(1, new Node(2, null)).Sum());
        Console.WriteLine("{0} {1}", Handles(0), Handles(1));
        Console.WriteLine(Try(() => Replaces()));
        Console.WriteLine(Try(() => { OnlyThrows(); return null; }));
        Console.WriteLine(marks);
        return 0;
    }

    static void Rounds(int rounds)
    {
        for (int i = 0; i < rounds; i++)
        {
            string text = i.ToString();
            string answer = Check(i, text, new Pair(i));
            if (answer != "r" + i) Console.WriteLine("wrong: {0}", answer);
            if (i % 512 == 0 && Handles(1) != 8) Console.WriteLine("wrong: handled");
        }
    }

    static int Storm()
    {
        bool isOver = false;
        Thread collector = new Thread(() =>
        {
            while (!Volatile.Read(ref isOver))
            {
                GC.Collect(0);
                byte[] litter = new byte[4000];
                GC.KeepAlive(litter);
                GC.Collect();
            }
        });
        collector.Start();
        Thread[] workers = new Thread[3];
        for (int i = 0; i < workers.Length; i++)
        {
            workers[i] = new Thread(() => Rounds(4000));
            workers[i].Start();
        }
        foreach (Thread worker in workers) worker.Join();
        Volatile.Write(ref isOver, true);
        collector.Join();
        Console.WriteLine("over");
        return 0;
    }

    static int Leave()
    {
        for (int i = 0; i < 3; i++)
        {
            Thread worker = new Thread(() => { while (true) Rounds(int.MaxValue); }) { IsBackground = true };
            worker.Start();
        }
        Rounds(5000);
        Console.WriteLine("left");
        return 0;
    }

    static int Main(string[] args)
    {
        string what = args.Length > 0 ? args[0] : "";
        return what == "storm" ? Storm() : what == "leave" ? Leave() : Once();
    }
}
