// target: 8.0
// Methods that take and return vectors of every width, in registers where these are wide enough. Prints what they return, which
// must be the same whether somebody looks at it or not.
using System;
using System.IO;
using System.Numerics;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.Intrinsics;
using System.Runtime.Intrinsics.X86;

struct Two { public double A, B; }
struct Four { public float A, B, C, D; }
struct FourLongs { public long A, B, C, D; }
struct Wrapped128 { public Vector128<long> Only; }
struct Wrapped256 { public Vector256<long> Only; }

static class WideValues
{
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector64<long> Of64(Vector64<long> a, Vector64<long> b) => a + b;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector128<long> Of128(Vector128<long> a, Vector128<long> b) => a + b;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector256<long> Of256(Vector256<long> a, Vector256<long> b) => a + b;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector512<long> Of512(Vector512<long> a, Vector512<long> b) => a + b;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector<long> OfAny(Vector<long> a, Vector<long> b) => a + b;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector2 OfTwo(Vector2 a, Vector2 b) => a + b;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector3 OfThree(Vector3 a, Vector3 b) => a + b;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector4 OfFour(Vector4 a, Vector4 b) => a + b;
    [MethodImpl(MethodImplOptions.NoInlining)] static Two Doubles(Two a, Two b) => new Two { A = a.A + b.A, B = a.B + b.B };
    [MethodImpl(MethodImplOptions.NoInlining)] static Four Floats(Four a, Four b) => new Four { A = a.A + b.A, B = a.B + b.B, C = a.C, D = b.D };
    [MethodImpl(MethodImplOptions.NoInlining)] static Wrapped128 Wrapped(Wrapped128 a) => a;
    [MethodImpl(MethodImplOptions.NoInlining)] static Wrapped256 Wrapped(Wrapped256 a) => a;
    [MethodImpl(MethodImplOptions.NoInlining)] static T Generic<T>(T a) => a;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector128<byte> Virtual(Func<Vector128<byte>> of) => of();
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Vector256<int> Many(Vector256<int> a, Vector128<int> b, Vector512<int> c, Vector256<int> d, double e, Vector256<int> f, Vector256<int> g) =>
        a + Vector256.Create(b, b) + c.GetLower() + c.GetUpper() + d + f + g + Vector256.Create((int)e);

    // These end in calls that may take the place of their frames, with values that were computed before. A method that must
    // not be inlined keeps its frame.
    [MethodImpl(MethodImplOptions.NoInlining)] static double Inner(double a, double b) => a - b;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector4 Inner(Vector4 a) => a;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector128<long> Inner(Vector128<long> a) => a;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector256<long> Inner(Vector256<long> a) => a;
    [MethodImpl(MethodImplOptions.NoInlining)] static Vector512<long> Inner(Vector512<long> a) => a;
    static double TailDouble(double a, double b) => Inner(a * b, a + b);
    static Vector4 TailFour(Vector4 a, Vector4 b) => Inner(a * b);
    static Vector128<long> Tail128(Vector128<long> a, Vector128<long> b) => Inner(a + b);
    static Vector256<long> Tail256(Vector256<long> a, Vector256<long> b) => Inner(a + b);
    static Vector512<long> Tail512(Vector512<long> a, Vector512<long> b) => Inner(a + b);
    static T Chooses<T>(T a, T b, bool isFirst)
    {
        T chosen = isFirst ? a : b;
        return Generic(chosen);
    }
    static long PassesOn(FourLongs a, long n) => System.OfTheFramework.Inlined.Passes(a, n);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static Vector256<byte> Packed(Vector256<ushort> a, Vector256<ushort> b) => Ordered(Avx2.PackUnsignedSaturate(a.AsInt16(), b.AsInt16()));
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static Vector256<byte> Ordered(Vector256<byte> a) => Avx2.Permute4x64(a.AsInt64(), 0b_11_01_10_00).AsByte();
    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Packs(int n)
    {
        if (!Avx2.IsSupported) return "";
        var a = Vector256.Create((ushort)n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        return Packed(a, a + Vector256.Create((ushort)16)).ToString();
    }

    /// Whose structs are in a third module.
    static Func<long, long> OfAnotherModule()
    {
        var folder = Path.GetDirectoryName(typeof(WideValues).Assembly.Location);
        Assembly.LoadFrom(Path.Combine(folder, "Wide.dll"));
        var uses = Assembly.LoadFrom(Path.Combine(folder, "UsesWide.dll"));
        return uses.GetType("UsesWide").GetMethod("Runs").CreateDelegate<Func<long, long>>();
    }

    static int Main()
    {
        var runs = OfAnotherModule();
        for (int i = 0; i < 40; i++)
        {
            var line = string.Join(" ", Of64(Vector64.Create(i + 1L), Vector64.Create(2L)), Of128(Vector128.Create(i, 2L), Vector128.Create(3L, 4)),
                Of256(Vector256.Create(i, 2L, 3, 4), Vector256.Create(5L, 6, 7, 8)), Of512(Vector512.Create(i, 2L, 3, 4, 5, 6, 7, 8), Vector512.Create(9L)),
                OfAny(new Vector<long>(i), new Vector<long>(7)), OfTwo(new Vector2(i, 2), new Vector2(3, 4)), OfThree(new Vector3(i, 2, 3), new Vector3(4, 5, 6)),
                OfFour(new Vector4(i, 2, 3, 4), new Vector4(5, 6, 7, 8)), Doubles(new Two { A = i, B = 2 }, new Two { A = 3, B = 4 }).B,
                Floats(new Four { A = i, C = 2 }, new Four { A = 3, D = 4 }).D, Wrapped(new Wrapped128 { Only = Vector128.Create(i, 2L) }).Only,
                Wrapped(new Wrapped256 { Only = Vector256.Create(i, 2L, 3, 4) }).Only, Generic(Vector256.Create(i, 2L, 3, 4)), Generic(Vector128.Create(i, 2L)),
                Virtual(() => Vector128.Create((byte)7)),
                Many(Vector256.Create(i), Vector128.Create(1, 2, 3, 4), Vector512.Create(5), Vector256.Create(6), 7, Vector256.Create(8), Vector256.Create(9)));
            line += string.Join(" ", "", TailDouble(i, 3), TailFour(new Vector4(i, 2, 3, 4), new Vector4(5, 6, 7, 8)), Tail128(Vector128.Create(i, 2L), Vector128.Create(3L, 4)),
                Tail256(Vector256.Create(i, 2L, 3, 4), Vector256.Create(5L, 6, 7, 8)), Tail512(Vector512.Create(i, 2L, 3, 4, 5, 6, 7, 8), Vector512.Create(9L)));
            line += Packs(i);
            var wrapped = new Wrapped256 { Only = Vector256.Create(i, 2L, 3, 4) };
            line += string.Join(" ", "", Chooses(wrapped, default, i > 1).Only, PassesOn(new FourLongs { A = i, B = 2, C = 3 }, i), runs(i));
            if (i % 13 == 0) Console.WriteLine(line);
        }
        return 0;
    }
}

namespace System.OfTheFramework
{
    // Has no hooks, but what it calls last is called by the method that it is inlined into.
    static class Inlined
    {
        [MethodImpl(MethodImplOptions.AggressiveInlining)]
        public static long Passes(FourLongs a, long n) => Sums(Vector256.Create(n, a.A, a.B, a.C) + Vector256.Create(n));

        [MethodImpl(MethodImplOptions.NoInlining)]
        static long Sums(Vector256<long> a) => Vector256.Sum(a);
    }
}
