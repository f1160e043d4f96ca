// target: 8.0
// Calls methods of every shape again and again on several threads, until they are compiled in the last tier, while a profiler changes
// what it likes. Each has to return what it has returned at first. Beside them a thread collects.
//
//     Hot [SECONDS = 2] [THREADS = 3]
//
// It prints a sum of what they have returned, and how many answers were wrong.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Numerics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;

interface ICounts
{
    static abstract long Step(long value);
    static virtual long Twice(long value) => 2 * value;
    long Count(int number);
    long Default(int number) => Count(number) + 1;
}

struct Small : ICounts
{
    public int Value;
    public static long Step(long value) => value + 3;
    public long Count(int number) => Value + number;
}

sealed class Large : ICounts
{
    public string Text = "large";
    public static long Step(long value) => value * 5;
    public static long Twice(long value) => 2 * value + 1;
    public long Count(int number) => Text.Length + number;
}

class Animal
{
    public string Name = "animal";
    public virtual Animal Copy() => new Animal { Name = Name + "." };
    public virtual T Pass<T>(T value, int number) => number % 2 == 0 ? value : default;
    public virtual long Weigh(int number) => number;
}

class Bird : Animal
{
    public override Bird Copy() => new Bird { Name = Name + "b" };
    public override T Pass<T>(T value, int number) => value;
    public override long Weigh(int number) => base.Weigh(number) * 2;
}

sealed class Fish : Animal
{
    public override long Weigh(int number) => number * 3L;
}

struct Wide
{
    public long A, B, C;
    public string D;
    public object E;
    public long Sum() => A + B + C + D.Length + (E == null ? 0 : 1);
    public Wide Next() { A++; return this; }
}

readonly ref struct Window
{
    readonly Span<int> items;
    readonly ref int first;
    public Window(Span<int> items) { this.items = items; first = ref items[0]; }
    public int Sum() { int sum = first; foreach (int item in items) sum += item; return sum; }
    public ref int At(int index) => ref items[index];
}

[InlineArray(8)]
struct Eight { object first; }

class Kept<T>
{
    [ThreadStatic] static T last;
    static readonly List<T> all = new List<T>();
    static Kept() { all.Add(default); }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Keep(T value) { last = value; return all.Count + (last == null ? 0 : 1); }
}

static class Waits
{
    public static async ValueTask<long> Awaits(int n) { if ((n & 1023) == 1) await Task.Yield(); return n + (await Inner(n)).Length; }
    static async Task<string> Inner(int n) { await Task.CompletedTask; return (n & 7).ToString(); }
}

// Called by a profiler.
static class Helper
{
    static int helped;
    internal static void Help() { helped++; }
    internal static void HelpWith(object value) { if (value != null) helped++; }
}

static unsafe class Hot
{
    static volatile bool isOver;
    static long wrong, sum, loops, finals;
    static readonly object gate = new object();
    static readonly Animal[] animals = { new Bird(), new Bird(), new Bird(), new Bird(), new Bird(), new Animal(), new Fish() };

    [DllImport("libc")]
    static extern void qsort(int* elements, nint count, nint size, delegate* unmanaged<int*, int*, int> compare);
    [DllImport("libc", SetLastError = true)]
    static extern int close(int file);
    [DllImport("libc")]
    static extern nint strlen(string text);

    [UnmanagedCallersOnly]
    static int Compare(int* a, int* b) => Order(*a, *b);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static int Order(int a, int b) => a - b;

    static long Stack(int n)
    {
        Span<int> items = stackalloc int[(n & 63) + 1];
        for (int i = 0; i < items.Length; i++) items[i] = i * n;
        long all = 0;
        foreach (int item in items) all += item;
        return all;
    }

    [SkipLocalsInit]
    static long Local(int n)
    {
        int size = (n & 31) + 1;
        byte* bytes = stackalloc byte[size];
        for (int i = 0; i < size; i++) bytes[i] = (byte)(i + n);
        return Sum(new ReadOnlySpan<byte>(bytes, size));
    }

    static long Sum(ReadOnlySpan<byte> bytes) { long all = 0; foreach (byte one in bytes) all += one; return all; }

    static long Windows(int n)
    {
        int[] items = new int[(n & 7) + 2];
        var window = new Window(items);
        window.At(1) = n;
        At(items, 0) += 4;
        ref int chosen = ref (n % 2 == 0 ? ref window.At(0) : ref At(items, 1));
        chosen++;
        return window.Sum();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ref int At(int[] items, int index) => ref items[index];

    static long Pinned(int n)
    {
        string text = n.ToString();
        byte[] bytes = new byte[16];
        fixed (char* chars = text)
        fixed (byte* first = bytes)
        {
            for (int i = 0; i < text.Length; i++) first[i] = (byte)chars[i];
            Give(n);
            return first[0] + chars[0] + bytes[text.Length - 1];
        }
    }

    static void Give(int n) { if ((n & 1023) == 0) GC.KeepAlive(new byte[100]); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throws(int n) { throw new InvalidOperationException(n % 2 == 0 ? "even" : "odd"); }

    static bool Chooses(Exception e, int n) { if (n % 5 == 0) throw new FormatException(); return e.Message == "even"; }

    static long Filters(int n)
    {
        if ((n & 15) != 3) return n;
        long all = 0;
        try
        {
            try { Throws(n); }
            catch (InvalidOperationException e) when (Chooses(e, n)) { all += 1; }
            finally { all += 10; Interlocked.Increment(ref finals); }
        }
        catch (InvalidOperationException e)
        {
            all += 100 + e.Message.Length;
            try { throw; } catch (Exception again) when (again == e) { all += 1000; }
        }
        return all;
    }

    static long Native(int n)
    {
        int* items = stackalloc int[8];
        for (int i = 0; i < 8; i++) items[i] = (n * 31 + i * 17) % 101;
        qsort(items, 8, 4, &Compare);
        close(-1);
        return items[0] * 1000 + items[7] + Marshal.GetLastWin32Error() + strlen("text");
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Steps<T>(long value, T counts, int n) where T : ICounts => T.Twice(T.Step(value)) + counts.Count(n) + counts.Default(n);

    static long Static(int n) => Steps(n, new Small { Value = n }, n) + Steps(n, new Large(), n) + Boxed(new Small { Value = 4 }, n);

    static long Boxed(ICounts counts, int n) => counts.Count(n) + counts.Default(n);

    static long Virtual(int n)
    {
        Animal animal = animals[n % animals.Length];
        long all = animal.Weigh(n) + animal.Copy().Name.Length;
        all += animal.Pass("text", n)?.Length ?? 0;
        all += animal.Pass(n, n) + animal.Pass(new Wide { A = n, D = "d" }, 0).A;
        all += animal.Pass<object>(null, n) == null ? 1 : 0;
        return all + new Bird().Copy().Copy().Name.Length;
    }

    static long Delegates(int n)
    {
        int more = n & 3;
        Func<int, long> closed = value => value + more;
        Func<int, long> open = Cold;
        Func<string, int> extension = "a".CompareTo;
        Func<long> bound = new Wide { A = n, D = "d" }.Sum;
        return closed(n) + open(n) + Math.Sign(extension("b")) + bound();
    }

    static long Cold(int n) => n * 7L;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Wide Many(Wide wide, double a, float b, string c, in Wide other, out long given, Vector4 vector, int d, int e, int f, long g, Wide last, decimal h)
    {
        given = d + e + f + g + (long)(a + b) + c.Length + (long)h;
        wide.A += other.B + last.C + (long)vector.Y;
        wide.E = c;
        return wide;
    }

    static long Arguments(int n)
    {
        var wide = new Wide { A = n, B = 2, C = 3, D = "wide" };
        Wide result = Many(wide, n, 1.5f, "c", in wide, out long given, new Vector4(1, n, 2, 3), 1, 2, n, 4, wide.Next(), n);
        return result.Sum() + given;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Vector<int> Vectors(Vector<int> a, Vector<int> b, object kept) => a + b * (kept == null ? 0 : 2);

    static long Simd(int n) => Vector.Dot(Vectors(new Vector<int>(n & 7), new Vector<int>(3), gate), Vector<int>.One) / Vector<int>.Count;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool IsEven(int n, object kept) => n == 0 ? kept != null : IsOdd(n - 1, kept);
    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool IsOdd(int n, object kept) => n == 0 ? kept == null : IsEven(n - 1, kept);

    static long Tail(int n) => IsEven(n & 255, gate) ? Tailed(n, 1) : Tailed(n, 2);
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Tailed(int n, int more) => Cold(n + more);

    static IEnumerable<int> Iterates(int n) { for (int i = 0; i < (n & 7); i++) { try { yield return i; } finally { Interlocked.Increment(ref finals); } } }
    static long Iterated(int n) { long all = 0; foreach (int item in Iterates(n)) all += item; return all; }

    static long Async(int n) => Waits.Awaits(n).AsTask().GetAwaiter().GetResult();

    [MethodImpl(MethodImplOptions.Synchronized)]
    static long Synchronized(int n) { lock (animals) return n + Monitor.IsEntered(gate).GetHashCode(); }

    static long Inline(int n)
    {
        var eight = new Eight();
        eight[n & 7] = "x";
        int all = 0;
        foreach (object one in eight) if (one != null) all++;
        return all + Kept<int>.Keep(n) + Kept<string>.Keep("s") + Kept<object>.Keep(gate) + Kept<Wide>.Keep(new Wide { D = "" });
    }

    static long Squares(int n)
    {
        var square = new object[3, 3];
        square[n % 3, 1] = "a";
        object[] texts = new string[] { "b", "c" };
        Swap(ref square[n % 3, 1], ref square[0, 0]);
        try { texts[0] = gate; } catch (ArrayTypeMismatchException) { return (string)square[0, 0] == "a" ? n : -1; }
        return -2;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Swap<T>(ref T a, ref T b) { T c = a; a = b; b = c; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Loop(int n)
    {
        long all = 0;
        var wide = new Wide { D = "loop" };
        Span<long> last = stackalloc long[2];
        for (int i = 0; i < 3000; i++)
        {
            try { all += i ^ n; last[i & 1] = all; wide.A = last[0]; }
            finally { wide.E = wide.D; }
        }
        return all + wide.Sum() + last[1];
    }

    static long Deep(int n) => n <= 0 ? 1 : Deeper(n - 1, out long more) + more;
    static long Deeper(int n, out long more) { more = n & 1; return Deep(n - 1); }
    static long Depth(int n) => Deep(n & 127);

    // Returns at the very end only.
    static void Forever(int n)
    {
        object kept = new object();
        long own = 0;
        while (!isOver)
        {
            own += Cold(n) == n * 7L && kept != null ? 1 : 1000000;
            if ((own & 4095) == 0) { Interlocked.Increment(ref loops); kept = new object(); }
        }
    }

    static readonly Func<int, long>[] all =
    {
        Stack, Local, Windows, Pinned, Filters, Native, Static, Virtual, Delegates, Arguments, Simd, Tail, Iterated, Async, Synchronized,
        Inline, Squares, Loop, Depth,
    };
    const int Numbers = 64;
    static readonly long[,] expected = new long[all.Length, Numbers];

    static void Work(int seed)
    {
        var random = new Random(seed);
        while (!isOver)
        {
            int which = random.Next(all.Length);
            for (int i = 0; i < 256 && !isOver; i++)
            {
                int n = random.Next(Numbers);
                long value;
                try { value = all[which](n); }
                catch (Exception e) { Console.Error.WriteLine("Hot: {0} of {1}: {2}", all[which].Method.Name, n, e); Interlocked.Increment(ref wrong); continue; }
                if (value == expected[which, n]) continue;
                if (Interlocked.Increment(ref wrong) < 10) Console.Error.WriteLine("Hot: {0} of {1}: {2}, not {3}", all[which].Method.Name, n, value, expected[which, n]);
            }
        }
    }

    static int Main(string[] args)
    {
        double seconds = args.Length > 0 ? double.Parse(args[0]) : 2;
        int threads = args.Length > 1 ? int.Parse(args[1]) : 3;
        // By itself first, before it is a part of a method that native code calls.
        delegate*<int, int, int> order = &Order;
        sum = order(args.Length, 1);
        sum = 0;
        for (int which = 0; which < all.Length; which++)
            for (int n = 0; n < Numbers; n++)
            {
                expected[which, n] = all[which](n);
                sum = unchecked(sum * 31 + expected[which, n]);
            }
        var started = new List<Thread>();
        for (int i = 0; i < threads; i++) { int seed = i; started.Add(new Thread(() => Work(seed))); }
        started.Add(new Thread(() => Forever(5)));
        started.Add(new Thread(() => { while (!isOver) { GC.Collect(0); Thread.Sleep(1); GC.Collect(); Thread.Sleep(2); } }));
        foreach (Thread thread in started) thread.Start();
        var watch = Stopwatch.StartNew();
        while (watch.Elapsed.TotalSeconds < seconds) Thread.Sleep(5);
        isOver = true;
        foreach (Thread thread in started) thread.Join();
        Console.WriteLine("{0}, {1} wrong", sum, wrong);
        return loops > 0 ? 0 : 1;
    }
}
