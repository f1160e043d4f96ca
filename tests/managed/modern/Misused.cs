// target: 8.0
// Methods of all sorts, for a profiler that inserts calls of all of them into all of the others, where it is let. Nothing in the
// program calls those of `Good`, whose calls change nothing that is printed. Those of `Bad` would crash the process, end it, or print.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;

return Victim.Run();

public struct Plain(int a, string b)
{
    public int A = a;
    public string B = b;
}

public enum Colour { Red, Green }

// Each of these can be called with anything at any time.
static class Good
{
    static int count;
    static string last = "";
    static readonly object gate = new();
    static readonly List<int> kept = [];
    static readonly StringBuilderOwner owner = new();

    public static void Nothing() { }
    // But not in `Plus`.
    public static void CallsBack() { Victim.Plus(1, 2); }
    public static void Counts() { count++; }
    internal static int Returns(int a) => a * 2;
    public static void Text(string a) { last = a + "!"; }
    public static void Formats(string a, int b) { last = $"{a} {b,4} {b:x}"; }
    public static void Number(long a) { Interlocked.Add(ref total, a); }
    public static void Double(double a) { last = a.ToString(); }
    public static void Object(object a) { last = a?.ToString() ?? "null"; }
    public static void Struct(Plain a) { count += a.A; }
    public static void Enum(Colour a) { last = a.ToString(); }
    public static void Nullable(int? a) { count += a ?? 1; }
    public static void Bool(bool a) { if (a) count++; else count--; }
    public static void Byte(byte a) { count += a; }
    public static void Locks(int a) { lock (gate) { kept.Add(a); if (kept.Count > 10) kept.Clear(); } }
    public static void Catches(int a) { try { if (a != 0) throw new InvalidOperationException(); } catch (InvalidOperationException) { count++; } }
    public static void Owns(string a) { owner.Add(a); }
    public static void Thing(Thing a) { count += a == null ? 0 : a.Id; }
    public static void Loops(int a) { int[] b = [1, 2, a]; foreach (int c in b) count += c; }
    public static void Enumerates() { lock (gate) foreach (int a in kept) count += a; }
    public static ValueTuple<int, int> Tuple(int a) => (a, a);
    static long total;
}

sealed class StringBuilderOwner
{
    readonly System.Text.StringBuilder text = new();
    public void Add(string more) { lock (text) { text.Append(more); if (text.Length > 100) text.Clear(); } }
}

public class Thing
{
    int id;
    public int Id => id;
    public Thing(int id) { this.id = id; }
    public virtual void Virtual() { }
    public override string ToString() => "thing";
}

public sealed class Harmful : Thing
{
    public Harmful() : base(1) { }
    public override void Virtual() { Bad.Crash(); }
}

// Each of these is refused: what it does depends on what it is passed, or on the moment.
static unsafe class Bad
{
    public static int Open;

    [DllImport("libc")] static extern void abort();

    [DllImport("libc", EntryPoint = "exit")] public static extern void Native(int code);

    public static void Crash() { *(int*)8 = 1; }
    public static void FreesNumber(long a) { Marshal.FreeHGlobal((IntPtr)(a | 16)); }
    public static void Pokes(int a) { *(byte*)a = 1; }
    public static void PokesLong(ulong a) { *(byte*)a = 1; }
    public static void TakesNative(IntPtr a) { Marshal.FreeHGlobal(a); }
    public static void TakesPointer(int* a) { *a = 1; }
    public static void TakesRef(ref int a) { a = 77; Console.WriteLine("ref"); }
    public static void TakesOut(out int a) { a = 77; Console.WriteLine("out"); }
    public static void TakesIn(in Plain a) { Console.WriteLine("in"); }
    public static void TakesSpan(Span<int> a) { Console.WriteLine("span"); }
    public static void TakesFunction(delegate*<int, void> a) { a(1); }
    public static void Generic<T>(T a) { Console.WriteLine("generic"); }
    public static void Deep(int a) { Deeper(a); }
    static void Deeper(int a) { Deepest(a + 1); }
    static void Deepest(int a) { Marshal.WriteByte((IntPtr)a, 1); }
    public static void TakesArray(int[] a) { if (a != null && a.Length > 0) { a[0] = 77; Console.WriteLine("array"); } }
    public static void Casts(object a) { if (a is int[] b && b.Length > 0) { b[0] = 77; Console.WriteLine("cast"); } }
    public static void TakesList(List<int> a) { if (a != null) { a.Add(77); Console.WriteLine("list"); } }
    public static void Virtual(Thing a) { (a ?? new Harmful()).Virtual(); }
    public static void RunsDelegate(Action a) { (a ?? Crash)(); }
    public static void MakesDelegate(int a) { Action b = Crash; b(); }
    public static void Lambda(int a) { Func<int> b = () => *(int*)a; Console.WriteLine(b()); }
    public static void SetsOpen(int a) { Open = a; Console.WriteLine("open"); }
    public static void Exits(int a) { Environment.Exit(3); }
    public static void FailsFast(string a) { Environment.FailFast(a); }
    public static void Aborts() { abort(); }
    public static void Reflects(string a) { typeof(Bad).GetMethod("Crash").Invoke(null, null); }
    public static void Reinterprets(object a) { Unsafe.As<Thing>(a ?? "text").Virtual(); Crash(); }
    public static void Reads(int[] a) { Unsafe.Add(ref MemoryMarshal.GetArrayDataReference(a ?? new int[1]), 1 << 28) = 1; }
    public static void Allocates(int a) { byte* b = stackalloc byte[1 << 28]; b[0] = 1; Use(b); }
    public static void Finalizes() { _ = new Finalized(); GC.Collect(); GC.WaitForPendingFinalizers(); }
    public static void Fixes(int[] a) { fixed (int* b = a ?? new int[1]) b[1 << 24] = 1; }
    public static void Unboxes(object a) { *(byte*)(IntPtr)(a ?? (IntPtr)8) = 1; }
    public static void Sleeps() { Thread.Sleep(Timeout.Infinite); }
    public static void Waits() { Console.ReadLine(); new ManualResetEvent(false).WaitOne(); }
    public static void Starts() { new Thread(Crash).Start(); Thread.Sleep(100); }
    public static void Overlays(object a) { var b = new Overlay { Object = a ?? "text" }; b.Thing.Virtual(); Crash(); }
    public static IEnumerable<int> Yields(int a) { yield return a; }
    public static void Queries(int[] a) { Console.WriteLine(a.Select(b => b + 1).Sum()); }
    public static void Library(string a) { NativeLibrary.Load(a); Crash(); }
    public static void Handle(GCHandle a) { a.Free(); Crash(); }
    [UnmanagedCallersOnly] public static void ForNative(int a) { Console.WriteLine("native"); }
    static void Use(byte* a) { *a = 1; }
}

// Addresses without a pointer: there are no checks of the index.
static unsafe class BadFixed
{
    struct Bytes { public fixed byte Data[8]; }
    class Holder { Bytes bytes; public void Set(int a) { bytes.Data[a] = 1; } }
    static readonly Holder holder = new();
    public static void Sets(int a) { holder.Set(a); }
}

// The one method relies on the elements that the other sets.
static unsafe class BadTable
{
    static byte* buffer;
    static readonly int[] offsets = [];
    public static void Sets(int a) { if (offsets.Length > 3) offsets[3] = a; Console.WriteLine("table"); }
    public static int Reads() => buffer == null ? 0 : buffer[offsets[3]];
}

// The one method relies on the field that the other sets.
static unsafe class BadMemory
{
    static byte* buffer;
    static int length;
    public static void Writes(int a) { buffer[a * 65536] = 1; }
    public static void SetsLength(int a) { length = a; Console.WriteLine("length"); }
    public static int Reads() => buffer == null ? 0 : buffer[length - 1];
}

static class BadLater
{
    public static async Task Later(int a) { await Task.Yield(); Bad.Crash(); }
}

sealed class Finalized
{
    ~Finalized() { Bad.Crash(); }
}

[StructLayout(LayoutKind.Explicit)]
struct Overlay
{
    [FieldOffset(0)] public object Object;
    [FieldOffset(0)] public Thing Thing;
}

static class BadStart
{
    static BadStart() { Bad.Crash(); }
    public static void Looks(int a) { }
}

static class BadField
{
    static readonly int value = Crashes();
    static int Crashes() { Bad.Crash(); return 1; }
    public static int Reads() => value;
}

class Outer
{
    class Hidden { public static void Inside(int a) { Console.WriteLine("hidden"); } }
    static void Private(int a) { Console.WriteLine("private"); }
    protected static void Family(int a) { Console.WriteLine("family"); }
    public void Instance(int a) { Console.WriteLine("instance"); }
    protected void Use() { Hidden.Inside(1); Private(1); }
}

static class OfAny<T>
{
    public static void Does(int a) { Console.WriteLine("of any"); }
}

interface IStatic { static virtual void Does(int a) { Console.WriteLine("static virtual"); } }

// The calls go here.
static class Victim
{
    [MethodImpl(MethodImplOptions.NoInlining)] public static int Plus(int a, int b) => a + b;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Branches(int a, string b)
    {
        if (a < 0) return "negative";
        for (int i = 0; i < a; i++) b += i % 2 == 0 ? "x" : "y";
        return a switch { 0 => "zero", 1 => b, 2 => b + "!", _ => throw new ArgumentException(b) };
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Tried(int a, int[] b)
    {
        int found = 0;
        try
        {
            try { found = b[a]; }
            finally { found += 10; }
        }
        catch (IndexOutOfRangeException) when (a > 5) { found = 1; }
        catch (Exception error) { found = error.Message.Length > 0 ? 2 : 3; }
        return found;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Mixed(Plain a, Colour b, int? c, Thing d, Action e, long f, double g, bool h, byte i, object j)
    {
        long sum = a.A + (int)b + (c ?? 5) + d.Id + f + (long)g + (h ? 1 : 0) + i;
        lock (d) { e(); }
        return sum + (j is string text ? text.Length : 0);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe int Pointers(int* a, ref int b, Span<int> c, nint d)
    {
        int e = *a;
        Span<byte> f = stackalloc byte[8];
        f[0] = (byte)e;
        fixed (int* g = c) e += g[0];
        b += e;
        return b + (int)d + f[0];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static T Same<T>(T a, List<T> b)
    {
        b.Add(a);
        foreach (T c in b) if (Equals(c, a)) return c;
        return default;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Func<int, int> Captures(int a) => b => a + b;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static IEnumerable<int> Iterates(int a)
    {
        try { for (int i = 0; i < a; i++) yield return i; }
        finally { a = 0; }
    }

    static async Task<int> Later(int a)
    {
        try { await Task.Yield(); }
        finally { a++; }
        return a;
    }

    sealed class Base : Thing
    {
        readonly int more;
        public Base(int a) : base(a) { more = a; }
        public int Sum() => Id + more;
        public override string ToString() => $"{Id} {more}";
    }

    [SkipLocalsInit]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Uninitialized(int a)
    {
        if (a == 0) return 0;
        Plain b = new(a, "b");
        long c = a * 3L;
        decimal d = c;
        return b.A + (int)c + (int)d;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static unsafe int Run()
    {
        int one = 1, two = 2;
        Console.WriteLine(Plus(1, 2));
        for (int i = -1; i < 3; i++) Console.WriteLine(Branches(i, "b"));
        try { Branches(3, "c"); } catch (ArgumentException error) { Console.WriteLine(error.Message); }
        foreach (int i in new[] { 0, 1, 4, 9 }) Console.WriteLine(Tried(i, [7, 8]));
        Console.WriteLine(Mixed(new Plain(1, "p"), Colour.Green, 3, new Thing(4), () => two++, 5, 6.5, true, 7, "text"));
        Console.WriteLine(Pointers(&one, ref one, [5, 6], 9) + one);
        Console.WriteLine(Same("same", []) + Same(5, [5]));
        Console.WriteLine(Captures(3)(4));
        Console.WriteLine(Iterates(5).Sum());
        Console.WriteLine(Later(5).Result);
        Console.WriteLine($"{new Base(6).Sum()} {new Base(7)}");
        Console.WriteLine(Uninitialized(0) + Uninitialized(2));
        return 0;
    }
}
