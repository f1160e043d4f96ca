// target: 8.0
// Calls methods of rarer shapes than Hot again and again on several threads, while a profiler changes what it likes: references that
// are not what their type says or that lead nowhere, hundreds of arguments and frames of 60 KB. Each has to return what it
// has returned at first. Beside them a thread collects.
//
//     Shapes [SECONDS = 2] [THREADS = 3] [NAME]: only the shape of this name
//
// It prints a sum of what they have returned, and how many answers were wrong.
#pragma warning disable CS0649, CS8500
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Diagnostics.CodeAnalysis;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Runtime.Intrinsics;
using System.Threading;

struct Pair
{
    public long A;
    public string B;
    public Pair(long a, string b) { A = a; B = b; }
}

// What is at one place is read by another type than it was written by.
[StructLayout(LayoutKind.Explicit)]
struct Union
{
    [FieldOffset(0)] public object Any;
    [FieldOffset(0)] public string Text;
    [FieldOffset(0)] public int[] Numbers;
    [FieldOffset(0)] public Large Large;
}

[StructLayout(LayoutKind.Explicit)]
sealed class UnionObject
{
    [FieldOffset(0)] public object Any;
    [FieldOffset(0)] public string Text;
    [FieldOffset(0)] public byte[] Bytes;
}

sealed class Large { public long A, B, C; public string D = "large"; }

ref struct Refers
{
    public ref int Number;
    public ref Pair Pair;
    public ReadOnlySpan<char> Text;
    public ref readonly string Word;
}

unsafe struct Huge { public fixed byte Bytes[60000]; public object Kept; }
struct Four { public float A, B, C, D; }
[InlineArray(200)] struct Many { Pair first; }

interface IBase { long Do<T>(T value) => 1; static abstract IBase Make(); static virtual long Size<T>() => 3; }
interface ILeft : IBase { long IBase.Do<T>(T value) => 2; }
interface IRight : IBase { abstract long More<T>(T value) where T : class; }
sealed class Both : ILeft, IRight
{
    public static IBase Make() => new Both();
    public long More<T>(T value) where T : class => value == null ? 4 : 5 + ((IBase)this).Do(value);
}
struct Value : ILeft { public static IBase Make() => new Value(); static long IBase.Size<T>() => typeof(T) == typeof(string) ? 7 : 8; }
class Nest<T> { public virtual Nest<Nest<T>> Deeper<U>(int depth, U value) => depth == 0 ? null : new Nest<Nest<T>>(); }
class Root { public virtual object Self => this; public virtual IReadOnlyList<object> All() => new object[] { this }; }
class Leaf : Root { public override Leaf Self => this; public override string[] All() => new[] { "leaf" }; }

// Called by a profiler.
static class Helper
{
    static int helped;
    internal static void Help() { helped++; }
    internal static void HelpWith(object value) { if (value != null) helped++; }
}

static unsafe class Shapes
{
    static volatile bool isOver;
    static long wrong, sum, loops;
    static readonly object gate = new object();
    static readonly int[] numbers = new int[3000000];
    static readonly byte[] bytes = new byte[5];

    [DllImport("libc"), SuppressGCTransition] static extern int abs(int number);
    [DllImport("libc")] static extern int* __errno_location();
    [DllImport("libc")] static extern void* mmap(void* at, nint size, int access, int kind, int file, nint offset);

    [UnmanagedCallersOnly(CallConvs = new[] { typeof(CallConvCdecl), typeof(CallConvSuppressGCTransition) })]
    static int Fast(int a) => a + 1;
    [UnmanagedCallersOnly(CallConvs = new[] { typeof(CallConvCdecl) })]
    static Four Given(Four four, long more, Four last) { four.A += last.D + more; return four; }
    delegate int Called(int number, Four four);

    static readonly byte* unmapped = (byte*)mmap(null, 1 << 20, 0, 0x22, -1, 0);
    static readonly Called called = (number, four) => number + (int)four.B;
    static readonly nint calledPointer = Marshal.GetFunctionPointerForDelegate(called);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Unions(Union union, int n) => union.Any is string text ? text.Length : n;
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Union United(object any) => new Union { Any = any };
    [MethodImpl(MethodImplOptions.NoInlining)]
    static UnionObject UnitedObject(UnionObject any) => any;
    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Called_(string text, int n) => n == 3 ? text : text;

    static long Mistyped(int n)
    {
        object any = (n % 5) switch { 0 => numbers, 1 => bytes, 2 => "text", 3 => new Large { A = -1, B = -1 }, _ => gate };
        long all = Unions(United(any), n);
        all += UnitedObject(new UnionObject { Any = any }).Any == any ? 1 : 0;
        return all + (Called_(Unsafe.As<string>(any), n) == null ? 0 : 1);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ref int Led(ref int number, ref Pair pair, ref string text, in Huge huge, ref object any, out int given) { given = 1; return ref number; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Refers Reference(Refers refers, scoped Span<Pair> pairs, scoped ReadOnlySpan<Huge> huge) => refers;
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Pointers(void* nothing, int** twice, Pair* pair, delegate*<int, int> code, TypedReference typed) => (long)nothing + (twice == null ? 0 : 1);

    static long Nowhere(int n)
    {
        byte* place = (n % 3) switch { 0 => null, 1 => unmapped, _ => (byte*)-8 };
        ref int number = ref Led(ref *(int*)place, ref *(Pair*)place, ref *(string*)place, in *(Huge*)place, ref *(object*)place, out int given);
        bool isSame = Unsafe.AreSame(ref number, ref *(int*)place);
        var refers = new Refers { Number = ref *(int*)place, Pair = ref *(Pair*)place, Word = ref *(string*)place, Text = new ReadOnlySpan<char>(place, 100) };
        refers = Reference(refers, new Span<Pair>(), default);
        ref int end = ref Unsafe.Add(ref MemoryMarshal.GetArrayDataReference(numbers), numbers.Length);
        Led(ref end, ref Unsafe.NullRef<Pair>(), ref Unsafe.NullRef<string>(), in Unsafe.NullRef<Huge>(), ref Unsafe.NullRef<object>(), out given);
        return (isSame ? 1 : 0) + refers.Text.Length + given + Pointers((void*)n, (int**)place, (Pair*)place, (delegate*<int, int>)place, __makeref(n));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Huge Huges(Huge huge, int n) { huge.Bytes[n] = 1; huge.Kept = gate; return huge; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Many Inlines(Many many, int n) { many[n] = new Pair(n, "m"); return many; }
    static long Sixty(int n)
    {
        Huge huge = Huges(default, n), more = Huges(huge, n + 1);
        byte* stack = stackalloc byte[50000];
        stack[n] = 3;
        Many many = Inlines(Inlines(default, n), n + 1);
        return more.Bytes[n] + more.Bytes[n + 1] + (more.Kept == gate ? 1 : 0) + stack[n] + many[n].A + many[n + 1].B.Length;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Vector512<long> Vectors(Vector512<long> a, Vector256<int> b, Vector128<byte> c, Vector64<short> d, object kept, Vector512<long> e, Four four, Vector512<double> f) =>
        a + e + Vector512.Create((long)b[3] + c[2] + d[1] + (long)four.C + (long)f[7] + (kept == null ? 0 : 1));
    static long Vectored(int n)
    {
        var a = Vector512.Create((long)n, 1, 2, 3, 4, 5, 6, 7);
        var result = Vectors(a, Vector256.Create(n), Vector128.Create((byte)n), Vector64.Create((short)n), gate, a, new Four { C = n }, Vector512.Create(2.0));
        return Vector512.Sum(Vectors(result, Vector256.Create(1), Vector128.Create((byte)2), Vector64.Create((short)1), null, a, default, default));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Static<T>(int n) where T : IBase => T.Make().Do(n) + T.Make().Do("s") + T.Size<string>() + T.Size<int>() + T.Size<T>();
    static long Generic(int n)
    {
        IRight right = new Both();
        Nest<string> nest = new Nest<string>();
        Root root = n % 2 == 0 ? new Leaf() : new Root();
        long all = Static<Both>(n) + Static<Value>(n) + right.More("s") + right.More(gate) + ((IBase)right).Do(new Pair());
        all += nest.Deeper(1, n).Deeper(1, "s").Deeper(1, new Pair()).Deeper(n % 2, gate) == null ? 1 : 2;
        return all + (root.Self == root ? 1 : 0) + root.All().Count;
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static int Plain(int n) => n + 1;
    [MethodImpl(MethodImplOptions.NoInlining)] static T Open<T>(T value) => value;
    static long Function(int n)
    {
        delegate*<int, int> plain = &Plain;
        delegate*<string, string> open = &Open<string>;
        delegate*<Pair, Pair> pair = &Open<Pair>;
        delegate* unmanaged[Cdecl, SuppressGCTransition]<int, int> fast = &Fast;
        delegate* unmanaged[Cdecl]<Four, long, Four, Four> given = &Given;
        var four = (delegate* unmanaged[Cdecl]<int, Four, int>)calledPointer;
        long all = plain(n) + open("open").Length + pair(new Pair(n, "")).A + abs(-n) + (long)given(new Four { A = 1 }, n, new Four { D = 2 }).A;
        return all + four(n, new Four { B = 3 }) + (__errno_location() == null ? 0 : 1);
    }

    [DoesNotReturn, MethodImpl(MethodImplOptions.NoInlining)]
    static void Fails(int n) => throw new ArgumentException((n % 7).ToString());
    [DoesNotReturn, MethodImpl(MethodImplOptions.NoInlining)]
    static int FailsDeep(int n) { if (n > 0) FailsDeep(n - 1); try { Fails(n); } finally { Interlocked.Increment(ref loops); } return n; }
    static long Failing(int n)
    {
        if ((n & 7) != 1) return n;
        try { FailsDeep(n & 15); } catch (ArgumentException e) when (Plain(e.Message.Length) == 2) { return Divides(n) + Nulls(null); }
        return 0;
    }
    static int Divides(int n) { try { return n / (n - n); } catch (DivideByZeroException) { return 1; } }
    static int Nulls(Large large) { try { return (int)large.A; } catch (NullReferenceException) { return 2; } }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Hundreds(
        int a0, string a1, double a2, object a3, Pair a4, byte a5, int a6, string a7, double a8, object a9, Pair a10,
        byte a11, int a12, string a13, double a14, object a15, Pair a16, byte a17, int a18, string a19, double a20,
        object a21, Pair a22, byte a23, int a24, string a25, double a26, object a27, Pair a28, byte a29, int a30,
        string a31, double a32, object a33, Pair a34, byte a35, int a36, string a37, double a38, object a39,
        Pair a40, byte a41, int a42, string a43, double a44, object a45, Pair a46, byte a47, int a48, string a49,
        double a50, object a51, Pair a52, byte a53, int a54, string a55, double a56, object a57, Pair a58, byte a59,
        int a60, string a61, double a62, object a63, Pair a64, byte a65, int a66, string a67, double a68, object a69,
        Pair a70, byte a71, int a72, string a73, double a74, object a75, Pair a76, byte a77, int a78, string a79,
        double a80, object a81, Pair a82, byte a83, int a84, string a85, double a86, object a87, Pair a88, byte a89,
        int a90, string a91, double a92, object a93, Pair a94, byte a95, int a96, string a97, double a98, object a99,
        Pair a100, byte a101, int a102, string a103, double a104, object a105, Pair a106, byte a107, int a108,
        string a109, double a110, object a111, Pair a112, byte a113, int a114, string a115, double a116, object a117,
        Pair a118, byte a119, int a120, string a121, double a122, object a123, Pair a124, byte a125, int a126,
        string a127, double a128, object a129, Pair a130, byte a131, int a132, string a133, double a134, object a135,
        Pair a136, byte a137, int a138, string a139, double a140, object a141, Pair a142, byte a143, int a144,
        string a145, double a146, object a147, Pair a148, byte a149, int a150, string a151, double a152, object a153,
        Pair a154, byte a155, int a156, string a157, double a158, object a159, Pair a160, byte a161, int a162,
        string a163, double a164, object a165, Pair a166, byte a167, int a168, string a169, double a170, object a171,
        Pair a172, byte a173, int a174, string a175, double a176, object a177, Pair a178, byte a179, int a180,
        string a181, double a182, object a183, Pair a184, byte a185, int a186, string a187, double a188, object a189,
        Pair a190, byte a191, int a192, string a193, double a194, object a195, Pair a196, byte a197, int a198,
        string a199, double a200, object a201, Pair a202, byte a203, int a204, string a205, double a206, object a207,
        Pair a208, byte a209, int a210, string a211, double a212, object a213, Pair a214, byte a215, int a216,
        string a217, double a218, object a219, Pair a220, byte a221, int a222, string a223, double a224, object a225,
        Pair a226, byte a227, int a228, string a229, double a230, object a231, Pair a232, byte a233, int a234,
        string a235, double a236, object a237, Pair a238, byte a239, int a240, string a241, double a242, object a243,
        Pair a244, byte a245, int a246, string a247, double a248, object a249, Pair a250, byte a251, int a252,
        string a253, double a254, object a255, Pair a256, byte a257, int a258, string a259, double a260, object a261,
        Pair a262, byte a263, int a264, string a265, double a266, object a267, Pair a268, byte a269, int a270,
        string a271, double a272, object a273, Pair a274, byte a275, int a276, string a277, double a278, object a279,
        Pair a280, byte a281, int a282, string a283, double a284, object a285, Pair a286, byte a287, int a288,
        string a289, double a290, object a291, Pair a292, byte a293, int a294, string a295, double a296, object a297,
        Pair a298, byte a299) =>
        a0 + a1.Length + (long)(a2*2) + (a3==null?0:1) + a4.A + a5 + a6 + a7.Length + (long)(a8*2) + (a9==null?0:1) +
        a10.A + a11 + a12 + a13.Length + (long)(a14*2) + (a15==null?0:1) + a16.A + a17 + a18 + a19.Length +
        (long)(a20*2) + (a21==null?0:1) + a22.A + a23 + a24 + a25.Length + (long)(a26*2) + (a27==null?0:1) + a28.A +
        a29 + a30 + a31.Length + (long)(a32*2) + (a33==null?0:1) + a34.A + a35 + a36 + a37.Length + (long)(a38*2) +
        (a39==null?0:1) + a40.A + a41 + a42 + a43.Length + (long)(a44*2) + (a45==null?0:1) + a46.A + a47 + a48 +
        a49.Length + (long)(a50*2) + (a51==null?0:1) + a52.A + a53 + a54 + a55.Length + (long)(a56*2) +
        (a57==null?0:1) + a58.A + a59 + a60 + a61.Length + (long)(a62*2) + (a63==null?0:1) + a64.A + a65 + a66 +
        a67.Length + (long)(a68*2) + (a69==null?0:1) + a70.A + a71 + a72 + a73.Length + (long)(a74*2) +
        (a75==null?0:1) + a76.A + a77 + a78 + a79.Length + (long)(a80*2) + (a81==null?0:1) + a82.A + a83 + a84 +
        a85.Length + (long)(a86*2) + (a87==null?0:1) + a88.A + a89 + a90 + a91.Length + (long)(a92*2) +
        (a93==null?0:1) + a94.A + a95 + a96 + a97.Length + (long)(a98*2) + (a99==null?0:1) + a100.A + a101 + a102 +
        a103.Length + (long)(a104*2) + (a105==null?0:1) + a106.A + a107 + a108 + a109.Length + (long)(a110*2) +
        (a111==null?0:1) + a112.A + a113 + a114 + a115.Length + (long)(a116*2) + (a117==null?0:1) + a118.A + a119 +
        a120 + a121.Length + (long)(a122*2) + (a123==null?0:1) + a124.A + a125 + a126 + a127.Length +
        (long)(a128*2) + (a129==null?0:1) + a130.A + a131 + a132 + a133.Length + (long)(a134*2) + (a135==null?0:1) +
        a136.A + a137 + a138 + a139.Length + (long)(a140*2) + (a141==null?0:1) + a142.A + a143 + a144 + a145.Length +
        (long)(a146*2) + (a147==null?0:1) + a148.A + a149 + a150 + a151.Length + (long)(a152*2) + (a153==null?0:1) +
        a154.A + a155 + a156 + a157.Length + (long)(a158*2) + (a159==null?0:1) + a160.A + a161 + a162 + a163.Length +
        (long)(a164*2) + (a165==null?0:1) + a166.A + a167 + a168 + a169.Length + (long)(a170*2) + (a171==null?0:1) +
        a172.A + a173 + a174 + a175.Length + (long)(a176*2) + (a177==null?0:1) + a178.A + a179 + a180 + a181.Length +
        (long)(a182*2) + (a183==null?0:1) + a184.A + a185 + a186 + a187.Length + (long)(a188*2) + (a189==null?0:1) +
        a190.A + a191 + a192 + a193.Length + (long)(a194*2) + (a195==null?0:1) + a196.A + a197 + a198 + a199.Length +
        (long)(a200*2) + (a201==null?0:1) + a202.A + a203 + a204 + a205.Length + (long)(a206*2) + (a207==null?0:1) +
        a208.A + a209 + a210 + a211.Length + (long)(a212*2) + (a213==null?0:1) + a214.A + a215 + a216 + a217.Length +
        (long)(a218*2) + (a219==null?0:1) + a220.A + a221 + a222 + a223.Length + (long)(a224*2) + (a225==null?0:1) +
        a226.A + a227 + a228 + a229.Length + (long)(a230*2) + (a231==null?0:1) + a232.A + a233 + a234 + a235.Length +
        (long)(a236*2) + (a237==null?0:1) + a238.A + a239 + a240 + a241.Length + (long)(a242*2) + (a243==null?0:1) +
        a244.A + a245 + a246 + a247.Length + (long)(a248*2) + (a249==null?0:1) + a250.A + a251 + a252 + a253.Length +
        (long)(a254*2) + (a255==null?0:1) + a256.A + a257 + a258 + a259.Length + (long)(a260*2) + (a261==null?0:1) +
        a262.A + a263 + a264 + a265.Length + (long)(a266*2) + (a267==null?0:1) + a268.A + a269 + a270 + a271.Length +
        (long)(a272*2) + (a273==null?0:1) + a274.A + a275 + a276 + a277.Length + (long)(a278*2) + (a279==null?0:1) +
        a280.A + a281 + a282 + a283.Length + (long)(a284*2) + (a285==null?0:1) + a286.A + a287 + a288 + a289.Length +
        (long)(a290*2) + (a291==null?0:1) + a292.A + a293 + a294 + a295.Length + (long)(a296*2) + (a297==null?0:1) +
        a298.A + a299;

    static long Hundred(int n) => Hundreds(
        n+0, "s", 0.5, gate, new Pair(n,"p"), 7, n+6, "s", 0.5, gate, new Pair(n,"p"), 7, n+12, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+18, "s", 0.5, gate, new Pair(n,"p"), 7, n+24, "s", 0.5, gate, new Pair(n,"p"), 7, n+30,
        "s", 0.5, gate, new Pair(n,"p"), 7, n+36, "s", 0.5, gate, new Pair(n,"p"), 7, n+42, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+48, "s", 0.5, gate, new Pair(n,"p"), 7, n+54, "s", 0.5, gate, new Pair(n,"p"), 7, n+60,
        "s", 0.5, gate, new Pair(n,"p"), 7, n+66, "s", 0.5, gate, new Pair(n,"p"), 7, n+72, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+78, "s", 0.5, gate, new Pair(n,"p"), 7, n+84, "s", 0.5, gate, new Pair(n,"p"), 7, n+90,
        "s", 0.5, gate, new Pair(n,"p"), 7, n+96, "s", 0.5, gate, new Pair(n,"p"), 7, n+102, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+108, "s", 0.5, gate, new Pair(n,"p"), 7, n+114, "s", 0.5, gate, new Pair(n,"p"), 7,
        n+120, "s", 0.5, gate, new Pair(n,"p"), 7, n+126, "s", 0.5, gate, new Pair(n,"p"), 7, n+132, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+138, "s", 0.5, gate, new Pair(n,"p"), 7, n+144, "s", 0.5, gate, new Pair(n,"p"), 7,
        n+150, "s", 0.5, gate, new Pair(n,"p"), 7, n+156, "s", 0.5, gate, new Pair(n,"p"), 7, n+162, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+168, "s", 0.5, gate, new Pair(n,"p"), 7, n+174, "s", 0.5, gate, new Pair(n,"p"), 7,
        n+180, "s", 0.5, gate, new Pair(n,"p"), 7, n+186, "s", 0.5, gate, new Pair(n,"p"), 7, n+192, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+198, "s", 0.5, gate, new Pair(n,"p"), 7, n+204, "s", 0.5, gate, new Pair(n,"p"), 7,
        n+210, "s", 0.5, gate, new Pair(n,"p"), 7, n+216, "s", 0.5, gate, new Pair(n,"p"), 7, n+222, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+228, "s", 0.5, gate, new Pair(n,"p"), 7, n+234, "s", 0.5, gate, new Pair(n,"p"), 7,
        n+240, "s", 0.5, gate, new Pair(n,"p"), 7, n+246, "s", 0.5, gate, new Pair(n,"p"), 7, n+252, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+258, "s", 0.5, gate, new Pair(n,"p"), 7, n+264, "s", 0.5, gate, new Pair(n,"p"), 7,
        n+270, "s", 0.5, gate, new Pair(n,"p"), 7, n+276, "s", 0.5, gate, new Pair(n,"p"), 7, n+282, "s", 0.5, gate,
        new Pair(n,"p"), 7, n+288, "s", 0.5, gate, new Pair(n,"p"), 7, n+294, "s", 0.5, gate, new Pair(n,"p"), 7);


    static Func<int, long>[] all = { Mistyped, Nowhere, Sixty, Vectored, Generic, Function, Failing, Hundred };
    const int Numbers = 64;
    static readonly long[,] expected = new long[all.Length, Numbers];

    static void Work(int seed)
    {
        var random = new Random(seed);
        while (!isOver)
        {
            int which = random.Next(all.Length);
            for (int i = 0; i < 64 && !isOver; i++)
            {
                int n = random.Next(Numbers);
                long value;
                try { value = all[which](n); }
                catch (Exception e) { Console.Error.WriteLine("Shapes: {0} of {1}: {2}", all[which].Method.Name, n, e); Interlocked.Increment(ref wrong); continue; }
                if (value == expected[which, n]) continue;
                if (Interlocked.Increment(ref wrong) < 10) Console.Error.WriteLine("Shapes: {0} of {1}: {2}, not {3}", all[which].Method.Name, n, value, expected[which, n]);
            }
        }
    }

    static int Main(string[] args)
    {
        double seconds = args.Length > 0 ? double.Parse(args[0]) : 2;
        int threads = args.Length > 1 ? int.Parse(args[1]) : 3;
        if (args.Length > 2) all = Array.FindAll(all, shape => shape.Method.Name == args[2]);
        for (int which = 0; which < all.Length; which++)
            for (int n = 0; n < Numbers; n++)
            {
                expected[which, n] = all[which](n);
                sum = unchecked(sum * 31 + expected[which, n]);
            }
        var started = new List<Thread>();
        for (int i = 0; i < threads; i++) { int seed = i; started.Add(new Thread(() => Work(seed))); }
        started.Add(new Thread(() => { while (!isOver) { GC.Collect(0); Thread.Sleep(1); GC.Collect(); Thread.Sleep(2); } }));
        foreach (Thread thread in started) thread.Start();
        var watch = Stopwatch.StartNew();
        while (watch.Elapsed.TotalSeconds < seconds) Thread.Sleep(5);
        isOver = true;
        foreach (Thread thread in started) thread.Join();
        Console.WriteLine("{0}, {1} wrong", sum, wrong);
        return 0;
    }
}
