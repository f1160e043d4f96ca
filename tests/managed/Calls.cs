// Calls methods of many shapes, and prints what comes out, to the last bit. For the enter/leave hooks: what it prints must not
// depend on them, and how often the methods of `Known` begin and end is known.
//
//     Calls [ROUNDS = 3]
using System;
using System.Reflection;
using System.Runtime.CompilerServices;

static class Calls
{
    static int Main(string[] args)
    {
        int rounds = args.Length > 0 ? int.Parse(args[0]) : 3;
        for (int round = 0; round < rounds; round++)
        {
            Console.WriteLine("fib {0} deep {1}", Known.Fib(15), Known.Deep(10000));
            Console.WriteLine("left {0}", Exceptions(round));
            Console.WriteLine("mix {0:x16}", Shapes.All(round));
            Console.WriteLine("generic {0:x16}", Generic.All(round));
            Console.WriteLine("vectors {0}", Vectors.All(round));
        }
        return 0;
    }

    static int Exceptions(int round)
    {
        int left = 0;
        for (int i = 0; i < 100; i++)
        {
            try { Known.Outer(i); left += 1; }
            catch (InvalidOperationException) { left += 1000; }
        }
        return left + Known.Finally;
    }
}

static class Known
{
    public static int Finally;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Deep(int n) { return n == 0 ? 0 : 1 + Deep(n - 1); }

    // Every fourth call ends in an exception, every second of which a filter lets pass here.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Outer(int i)
    {
        try { return 1 + Inner(i); }
        catch (InvalidOperationException) when (Filter(i)) { return 2; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static bool Filter(int i) { return i % 8 == 0; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Inner(int i)
    {
        try { if (i % 4 == 0) Throw(i); return i; }
        finally { Cleanup(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Cleanup() { Finally++; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Throw(int i) { throw new InvalidOperationException(i.ToString()); }
}

struct Doubles { public double A, B; }
struct Floats { public float A, B, C, D; }
struct Mixed { public long A; public double B; }
struct Swapped { public double A; public long B; }
struct Big { public long A, B, C; public double D; }
struct Small { public byte A; public short B; }
struct One { public double A; }
enum Colour : byte { Red = 3, Green = 7 }

static class Shapes
{
    static ulong sum;

    static void Take(ulong bits) { sum = (sum << 7 | sum >> 57) * 0x9E3779B97F4A7C15UL + bits; }
    static void Take(double value) { Take((ulong)BitConverter.DoubleToInt64Bits(value)); }

    public static ulong All(int round)
    {
        sum = 0;
        double d = 1.0 / (round + 3);
        float f = (float)d;
        for (int i = 0; i < 50; i++)
        {
            Take(D8(d, d + i, d * 3, d - 1, d / 7, d + 5, -d, d * d));
            Take(F8(f, f + i, f * 3, f - 1, f / 7, f + 5, -f, f * f));
            Take((ulong)I6(i, -i, i * 3L, (short)i, (byte)i, (char)(i + 65)));
            Take(Many(i, d, f, i + 1L, d * 2, (byte)i, f * 2, "text", d * 3, (short)-i, f * 3, true, d * 4, 'x', f * 4, d * 5, i - 1, d * 6, f * 5, d * 7));
            Doubles doubles = TwoDoubles(new Doubles { A = d, B = i }, i, d); Take(doubles.A); Take(doubles.B);
            Floats floats = FourFloats(new Floats { A = f, B = i, C = -f, D = f * i }, f); Take(floats.A); Take(floats.B); Take(floats.C); Take(floats.D);
            Mixed mixed = LongDouble(new Mixed { A = i, B = d }, new Swapped { A = d, B = -i }); Take((ulong)mixed.A); Take(mixed.B);
            Swapped swapped = DoubleLong(new Swapped { A = d, B = i }, i); Take(swapped.A); Take((ulong)swapped.B);
            Big big = Bigger(new Big { A = i, B = 2, C = 3, D = d }, d, f); Take((ulong)big.A); Take(big.D);
            Small small = Smaller(new Small { A = (byte)i, B = (short)-i }, (Colour)(i & 7)); Take((ulong)(small.A + small.B));
            Take(Single(new One { A = d }).A);
            double byRef = d; int byOut;
            Take(References(ref byRef, out byOut, i)); Take(byRef); Take((ulong)byOut);
            decimal money = Money(i * 1.25m, d); Take((ulong)(long)(money * 1000));
            DateTime? maybe = Maybe(i % 2 == 0 ? (DateTime?)new DateTime(2000 + i, 1, 1) : null); Take((ulong)(maybe.HasValue ? maybe.Value.Ticks : 0));
            Take((ulong)Text("a" + i, d).Length);
            Take(new Instance { Field = d }.Virtual(i, f)); Take(((IFace)new Instance { Field = -d }).Face(d, i));
            Func<double, float, double> function = new Instance { Field = d * 2 }.Closed; Take(function(d, f));
            Take(F1(f)); Take(Bool(d > 0.1, d) ? 1UL : 0UL);
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static double D8(double a, double b, double c, double d, double e, double f, double g, double h) { return a - b * c + d / e - f + g * h; }
    [MethodImpl(MethodImplOptions.NoInlining)] static float F8(float a, float b, float c, float d, float e, float f, float g, float h) { return a - b * c + d / e - f + g * h; }
    [MethodImpl(MethodImplOptions.NoInlining)] static float F1(float a) { return a * 1.5f; }
    [MethodImpl(MethodImplOptions.NoInlining)] static bool Bool(bool a, double b) { return a ^ b > 0.2; }
    [MethodImpl(MethodImplOptions.NoInlining)] static long I6(int a, int b, long c, short d, byte e, char f) { return a + 3L * b + 5 * c + 7 * d + 11 * e + 13 * f; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static double Many(int a, double b, float c, long d, double e, byte f, float g, string h, double i, short j, float k, bool l, double m, char n, float o, double p, int q, double r, float s, double t)
    {
        return a + b * 2 + c * 3 + d * 5 + e * 7 + f * 11 + g * 13 + h.Length * 17 + i * 19 + j * 23 + k * 29 + (l ? 31 : 0) + m * 37 + n * 41 + o * 43 + p * 47 + q * 53 + r * 59 + s * 61 + t * 67;
    }
    [MethodImpl(MethodImplOptions.NoInlining)] static Doubles TwoDoubles(Doubles a, int b, double c) { return new Doubles { A = a.B * c, B = a.A + b }; }
    [MethodImpl(MethodImplOptions.NoInlining)] static Floats FourFloats(Floats a, float b) { return new Floats { A = a.D, B = a.C * b, C = a.B, D = a.A }; }
    [MethodImpl(MethodImplOptions.NoInlining)] static Mixed LongDouble(Mixed a, Swapped b) { return new Mixed { A = a.A * 3 + b.B, B = a.B - b.A * 5 }; }
    [MethodImpl(MethodImplOptions.NoInlining)] static Swapped DoubleLong(Swapped a, int b) { return new Swapped { A = a.A / (b + 1), B = a.B * b }; }
    [MethodImpl(MethodImplOptions.NoInlining)] static Big Bigger(Big a, double b, float c) { a.A++; a.D = a.D * b + c; return a; }
    [MethodImpl(MethodImplOptions.NoInlining)] static Small Smaller(Small a, Colour b) { return new Small { A = (byte)b, B = (short)(a.A + a.B) }; }
    [MethodImpl(MethodImplOptions.NoInlining)] static One Single(One a) { return new One { A = a.A * 3 }; }
    [MethodImpl(MethodImplOptions.NoInlining)] static double References(ref double a, out int b, int c) { b = c * 2; a += c; return a * 2; }
    [MethodImpl(MethodImplOptions.NoInlining)] static decimal Money(decimal a, double b) { return a + (decimal)b; }
    [MethodImpl(MethodImplOptions.NoInlining)] static DateTime? Maybe(DateTime? a) { return a.HasValue ? a.Value.AddDays(1) : a; }
    [MethodImpl(MethodImplOptions.NoInlining)] static string Text(string a, double b) { return b > 0 ? a : a + a; }
}

interface IFace { double Face(double a, int b); }

class Instance : IFace
{
    public double Field;
    public virtual double Virtual(int a, float b) { return Field * a + b; }
    public double Face(double a, int b) { return Field - a * b; }
    public double Closed(double a, float b) { return Field / a - b; }
}

class Pair<T>
{
    public T A, B;
    [MethodImpl(MethodImplOptions.NoInlining)] public Pair<T> Swap(T a, T b) { return new Pair<T> { A = b, B = a }; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static T Choose(bool first, T a, int between, T b) { return first ? a : b; }
}

static class Generic
{
    public static ulong All(int round)
    {
        double d = 1.0 / (round + 7);
        ulong sum = 0;
        for (int i = 0; i < 30; i++)
        {
            Pair<double> doubles = new Pair<double>().Swap(d, d * i);
            Pair<string> strings = new Pair<string>().Swap("a", "bb" + i);
            Pair<Floats> floats = new Pair<Floats>().Swap(new Floats { A = i }, new Floats { D = (float)d });
            sum = sum * 31 + (ulong)BitConverter.DoubleToInt64Bits(doubles.A - doubles.B) + (ulong)strings.A.Length;
            sum = sum * 31 + (ulong)BitConverter.DoubleToInt64Bits(floats.A.D + floats.B.A);
            sum = sum * 31 + (ulong)BitConverter.DoubleToInt64Bits(Pair<double>.Choose(i % 2 == 0, d, i, -d));
            sum = sum * 31 + (ulong)BitConverter.DoubleToInt64Bits(Method<double, int>(d * i, i));
            sum = sum * 31 + (ulong)BitConverter.DoubleToInt64Bits(Pair<Doubles>.Choose(i % 3 == 0, new Doubles { A = d }, i, new Doubles { A = i, B = d }).A);
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static T Method<T, U>(T a, U b) { return b.GetHashCode() % 2 == 0 ? a : default(T); }
}

// The compiler of this file does not know these types, but the runtime passes them by value all the same.
static class Vectors
{
    public static string All(int round)
    {
        string all = "";
        foreach (string name in new[] { "System.Numerics.Vector4", "System.Numerics.Vector2", "System.Runtime.Intrinsics.Vector128`1", "System.Runtime.Intrinsics.Vector256`1" })
        {
            Type type = typeof(object).Assembly.GetType(name) ?? Type.GetType(name + ", System.Numerics.Vectors", true);
            if (type.IsGenericType) type = type.MakeGenericType(typeof(double));
            object result = typeof(Passes<>).MakeGenericType(type).GetMethod("Around").Invoke(null, new object[] { round });
            all += " " + result;
        }
        return all;
    }
}

static class Bits
{
    public static string Of(byte[] bytes) { return BitConverter.ToString(bytes).Replace("-", ""); }
}

static class Passes<T> where T : struct
{
    public static string Around(int round)
    {
        T a = Make(round + 1), b = Make(round + 2), c = Make(round + 3);
        T result = a;
        for (int i = 0; i < 20; i++) result = Third(i, Keep(result, a, b, c), 1.5 * i, Third(i, b, 0.5, a));
        return Text(Keep(c, result, a, b)) + Text(result);
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static T Keep(T a, T b, T c, T d) { return b; }
    [MethodImpl(MethodImplOptions.NoInlining)] static T Third(int i, T a, double between, T b) { return i % 3 == 0 ? a : b; }

    // Every byte of it has a value of its own.
    static T Make(int seed)
    {
        T[] one = new T[1];
        System.Runtime.InteropServices.GCHandle handle = System.Runtime.InteropServices.GCHandle.Alloc(one, System.Runtime.InteropServices.GCHandleType.Pinned);
        for (int i = 0; i < Size; i++) System.Runtime.InteropServices.Marshal.WriteByte(handle.AddrOfPinnedObject(), i, (byte)(seed * 67 + i * 5 + 1));
        handle.Free();
        return one[0];
    }

    static string Text(T value)
    {
        T[] one = { value };
        System.Runtime.InteropServices.GCHandle handle = System.Runtime.InteropServices.GCHandle.Alloc(one, System.Runtime.InteropServices.GCHandleType.Pinned);
        byte[] bytes = new byte[Size];
        for (int i = 0; i < Size; i++) bytes[i] = System.Runtime.InteropServices.Marshal.ReadByte(handle.AddrOfPinnedObject(), i);
        handle.Free();
        return Bits.Of(bytes);
    }

    static readonly int Size = SizeOf();

    static int SizeOf()
    {
        T[] two = new T[2];
        return (int)(System.Runtime.InteropServices.Marshal.UnsafeAddrOfPinnedArrayElement(two, 1).ToInt64() - System.Runtime.InteropServices.Marshal.UnsafeAddrOfPinnedArrayElement(two, 0).ToInt64());
    }
}
