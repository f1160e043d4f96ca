// Calls methods with known values of every kind, for live/values.rs to find again. Prints what each made of its arguments,
// which must be the same whether somebody looks at them or not.
// reference: System.Numerics
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Numerics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Shapes
{
    public enum Small : byte { One = 1, Two = 2 }
    public enum Signed { Minus = -5, Plus = 5 }
    public enum Huge : ulong { Most = ulong.MaxValue }

    public struct OneInt { public int A; }
    public struct OneFloat { public float F; }
    public struct OneDouble { public double D; }
    public struct TwoFloats { public float X, Y; }
    public struct ThreeFloats { public float X, Y, Z; }
    public struct FourDoubles { public double A, B, C, D; }
    public struct FloatThenDouble { public float F; public double D; }
    public struct IntAndDouble { public int I; public double D; }
    public struct FloatAndInt { public float F; public int I; }
    public struct DoubleAndInt { public double D; public int I; }
    public struct Bytes3 { public byte A, B, C; }
    public struct Longs2 { public long A, B; }
    public struct Longs3 { public long A, B, C; }
    public struct Named { public string Name; public int Age; }
    public struct Inner { public short S; public Small E; }
    public struct Outer { public Inner In; public object O; public OneFloat F; }
    public struct Empty { }
    public struct Pair<A, B> { public A First; public B Second; }

    [StructLayout(LayoutKind.Explicit)]
    public struct Overlaid
    {
        [FieldOffset(0)] public int I;
        [FieldOffset(0)] public float F;
        [FieldOffset(4)] public byte B;
    }

    public class Thing { public int Id; public Thing(int id) { Id = id; } }

    public struct Counter
    {
        public int Count;
        [MethodImpl(MethodImplOptions.NoInlining)] public int Add(int by) { Count += by; return Count; }
    }
}

namespace Values
{
    using Shapes;

    static class Numbers
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public static bool Bool(bool a) { return !a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static char Char(char a) { return (char)(a + 1); }
        [MethodImpl(MethodImplOptions.NoInlining)] public static sbyte SByte(sbyte a) { return (sbyte)-a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static byte Byte(byte a) { return (byte)(a + 1); }
        [MethodImpl(MethodImplOptions.NoInlining)] public static short Short(short a) { return (short)-a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static ushort UShort(ushort a) { return (ushort)(a + 1); }
        [MethodImpl(MethodImplOptions.NoInlining)] public static int Int(int a) { return -a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static uint UInt(uint a) { return a + 1; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static long Long(long a) { return -a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static ulong ULong(ulong a) { return a - 1; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static float Float(float a) { return a * 2; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static double Double(double a) { return a * 2; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static IntPtr Native(IntPtr a, UIntPtr b) { return new IntPtr((long)a - (long)b); }
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static double Many(int a, double b, long c, float d, byte e, double f, double g, double h, double i, float j,
            double k, double l, int m, long n, short o, sbyte p, double q, string r, bool s, char t)
        {
            return a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r.Length + (s ? 1 : 0) + t;
        }
        [MethodImpl(MethodImplOptions.NoInlining)] public static void Nothing() { }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Small Enum(Small a, Signed b, Huge c) { return a == Small.One ? Small.Two : Small.One; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Signed Enum2(Signed a) { return Signed.Minus; }
        // More than a hook has room for.
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static int TooMany(
            int p0, int p1, int p2, int p3, int p4, int p5, int p6, int p7, int p8, int p9, int p10, int p11, int p12,
            int p13, int p14, int p15, int p16, int p17, int p18, int p19, int p20, int p21, int p22, int p23, int p24,
            int p25, int p26, int p27, int p28, int p29, int p30, int p31, int p32, int p33, int p34, int p35, int p36,
            int p37, int p38, int p39, int p40, int p41, int p42, int p43, int p44, int p45, int p46, int p47, int p48,
            int p49, int p50, int p51, int p52, int p53, int p54, int p55, int p56, int p57, int p58, int p59, int p60,
            int p61, int p62, int p63, int p64, int p65, int p66, int p67, int p68, int p69, int p70, int p71, int p72,
            int p73, int p74, int p75, int p76, int p77, int p78, int p79, int p80, int p81, int p82, int p83, int p84,
            int p85, int p86, int p87, int p88, int p89, int p90, int p91, int p92, int p93, int p94, int p95, int p96,
            int p97, int p98, int p99, int p100, int p101, int p102, int p103, int p104, int p105, int p106, int p107,
            int p108, int p109, int p110, int p111, int p112, int p113, int p114, int p115, int p116, int p117, int
            p118, int p119, int p120, int p121, int p122, int p123, int p124, int p125, int p126, int p127, int p128,
            int p129)
        {
            return p0 + p129;
        }
        [MethodImpl(MethodImplOptions.NoInlining)] public static decimal Decimal(decimal a) { return a + 1; }
    }

    static class References
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public static string String(string a, string b) { return a + b; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static object Object(object a, object b) { return b ?? a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Thing Class(Thing a, int[] b, int[,] c, List<string> d) { return a; }
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static unsafe int* Pointer(int* a, void* b) { return a + 1; }
    }

    static class ByRefs
    {
        static readonly int[] cells = { 10, 20, 30 };
        [MethodImpl(MethodImplOptions.NoInlining)] public static void Ref(ref int a, out long b, ref double c) { b = a; a++; c *= 2; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static ref int Cell(int at) { return ref cells[at]; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static int Struct(ref Named a, ref IntAndDouble b) { return a.Age + b.I; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static void Text(ref string a) { a += "!"; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static bool End(ref int end, ref string none) { return true; }
    }

    static class Structs
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public static OneInt OneInt(OneInt a) { a.A++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static OneFloat OneFloat(OneFloat a) { a.F++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static OneDouble OneDouble(OneDouble a) { a.D++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static TwoFloats TwoFloats(TwoFloats a) { a.Y++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static ThreeFloats ThreeFloats(ThreeFloats a) { a.Z++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static FourDoubles FourDoubles(FourDoubles a) { a.D++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static FloatThenDouble FloatThenDouble(FloatThenDouble a) { a.D++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static IntAndDouble IntAndDouble(IntAndDouble a) { a.D++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static FloatAndInt FloatAndInt(FloatAndInt a) { a.I++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static DoubleAndInt DoubleAndInt(DoubleAndInt a) { a.I++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Bytes3 Bytes3(Bytes3 a) { a.C++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Longs2 Longs2(Longs2 a) { a.B++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Longs3 Longs3(Longs3 a) { a.C++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Named Named(Named a) { a.Age++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Outer Outer(Outer a) { a.In.S++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Overlaid Overlaid(Overlaid a) { a.B++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static int Empty(Empty a, int b) { return b; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Vector2 Vector2(Vector2 a) { return a + a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Vector3 Vector3(Vector3 a) { return a + a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static Vector4 Vector4(Vector4 a) { return a + a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static DateTime Date(DateTime a, TimeSpan b) { return a + b; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static int? Maybe(int? a, double? b) { return a; }
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static Pair<int, string> Pair(Pair<int, string> a, KeyValuePair<Small, OneFloat> b) { a.First++; return a; }
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static double Several(OneFloat a, TwoFloats b, IntAndDouble c, Longs2 d, ThreeFloats e, Longs3 f, DoubleAndInt g,
            TwoFloats h, Longs2 i, OneDouble j)
        {
            return a.F + b.X + b.Y + c.I + c.D + d.A + d.B + e.X + e.Y + e.Z + f.A + f.B + f.C + g.D + g.I + h.X + h.Y + i.A
                + i.B + j.D;
        }
    }

    class Instance
    {
        public int Field = 7;
        [MethodImpl(MethodImplOptions.NoInlining)] public int Add(int a, double b) { return Field + a + (int)b; }
        [MethodImpl(MethodImplOptions.NoInlining)] public virtual Longs3 Large(string a) { return new Longs3 { A = a.Length, B = 2, C = 3 }; }
    }

    class Generic<T>
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public T Echo(T a) { return a; }
        [MethodImpl(MethodImplOptions.NoInlining)] public static T Choose<U>(T a, U b, Pair<T, U> c) { return a; }
    }
}

namespace App
{
    using Shapes;
    using Values;

    static class Text
    {
        public static string Of(object value)
        {
            if (value == null) return "null";
            if (value is float) return BitConverter.ToInt32(BitConverter.GetBytes((float)value), 0).ToString("x8");
            if (value is double) return BitConverter.DoubleToInt64Bits((double)value).ToString("x16");
            if (value is IFormattable && (value.GetType().IsPrimitive || value is Enum || value is decimal))
                return ((IFormattable)value).ToString(null, CultureInfo.InvariantCulture);
            if (value is bool) return (bool)value ? "true" : "false";
            if (value is char) return ((int)(char)value).ToString();
            if (value is string) return (string)value;
            if (value is Thing) return "Thing " + ((Thing)value).Id;
            if (!value.GetType().IsValueType) return value.GetType().Name;
            return "{" + string.Join(",", value.GetType()
                .GetFields(System.Reflection.BindingFlags.Instance | System.Reflection.BindingFlags.Public
                    | System.Reflection.BindingFlags.NonPublic)
                .Select(field => Of(field.GetValue(value)))) + "}";
        }
    }

    static class Program
    {
        static void Say(string name, object value) { Console.WriteLine(name + " " + Text.Of(value)); }

        static unsafe void Main()
        {
            Say("Bool", Numbers.Bool(true));
            Say("Char", Numbers.Char('é'));
            Say("SByte", Numbers.SByte(-100));
            Say("Byte", Numbers.Byte(200));
            Say("Short", Numbers.Short(-30000));
            Say("UShort", Numbers.UShort(60000));
            Say("Int", Numbers.Int(-2000000000));
            Say("UInt", Numbers.UInt(4000000000));
            Say("Long", Numbers.Long(-9000000000000000000));
            Say("ULong", Numbers.ULong(18000000000000000000));
            Say("Float", Numbers.Float(1.25f));
            Say("Double", Numbers.Double(-2.5));
            Say("Native", Numbers.Native(new IntPtr(-3), new UIntPtr(5)).ToInt64());
            Say("Many", Numbers.Many(1, 2.5, 3, 4.5f, 5, 6.5, 7.5, 8.5, 9.5, 10.5f, 11.5, 12.5, 13, 14, 15, -16, 17.5, "r", true, 't'));
            Numbers.Nothing();
            Say("Enum", Numbers.Enum(Small.One, Signed.Minus, Huge.Most));
            Say("Enum2", Numbers.Enum2(Signed.Plus));
            Say("Decimal", Numbers.Decimal(12.5m));
            Say("TooMany", Numbers.TooMany(
                0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53,
                54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79,
                80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104,
                105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125,
                126, 127, 128, 129));

            Say("String", References.String("one \"é\" ", "\ud83d\ude00"));
            Say("StringNull", References.String(null, ""));
            Say("Object", References.Object(new Thing(1), null));
            Say("Class", References.Class(new Thing(2), new[] { 1, 2, 3 }, new int[2, 2], null));
            Say("Pointer", (long)References.Pointer((int*)0x1000, (void*)0x2000));

            int a = 5; long b; double c = 0.75;
            ByRefs.Ref(ref a, out b, ref c);
            Say("Ref", a + b + c);
            ByRefs.Cell(1) += 2;
            Say("Cell", ByRefs.Cell(1));
            var named = new Named { Name = "n", Age = 33 };
            var both = new IntAndDouble { I = 4, D = 0.5 };
            Say("Struct", ByRefs.Struct(ref named, ref both));
            var text = "text";
            ByRefs.Text(ref text);
            Say("Text", text);
            Say("End", ByRefs.End(ref *(int*)0x10, ref text));

            Say("OneInt", Structs.OneInt(new OneInt { A = 1 }));
            Say("OneFloat", Structs.OneFloat(new OneFloat { F = 1.5f }));
            Say("OneDouble", Structs.OneDouble(new OneDouble { D = 2.5 }));
            Say("TwoFloats", Structs.TwoFloats(new TwoFloats { X = 1.5f, Y = 2.5f }));
            Say("ThreeFloats", Structs.ThreeFloats(new ThreeFloats { X = 1.5f, Y = 2.5f, Z = 3.5f }));
            Say("FourDoubles", Structs.FourDoubles(new FourDoubles { A = 1.5, B = 2.5, C = 3.5, D = 4.5 }));
            Say("FloatThenDouble", Structs.FloatThenDouble(new FloatThenDouble { F = 1.5f, D = 2.5 }));
            Say("IntAndDouble", Structs.IntAndDouble(new IntAndDouble { I = 1, D = 2.5 }));
            Say("FloatAndInt", Structs.FloatAndInt(new FloatAndInt { F = 1.5f, I = 2 }).I);
            Say("DoubleAndInt", Structs.DoubleAndInt(new DoubleAndInt { D = 1.5, I = 2 }));
            Say("Bytes3", Structs.Bytes3(new Bytes3 { A = 1, B = 2, C = 3 }));
            Say("Longs2", Structs.Longs2(new Longs2 { A = 1, B = 2 }));
            Say("Longs3", Structs.Longs3(new Longs3 { A = 1, B = 2, C = 3 }));
            Say("Named", Structs.Named(new Named { Name = "name", Age = 1 }));
            Say("Outer", Structs.Outer(new Outer { In = new Inner { S = 1, E = Small.Two }, O = null, F = new OneFloat { F = 1.5f } }));
            Say("Overlaid", Structs.Overlaid(new Overlaid { I = 0x3f800000, B = 9 }));
            Say("Empty", Structs.Empty(new Empty(), 3));
            Say("Vector2", Structs.Vector2(new Vector2(1.5f, 2.5f)));
            Say("Vector3", Structs.Vector3(new Vector3(1.5f, 2.5f, 3.5f)));
            Say("Vector4", Structs.Vector4(new Vector4(1.5f, 2.5f, 3.5f, 4.5f)));
            Say("Date", Structs.Date(new DateTime(1000), new TimeSpan(24)).Ticks);
            Say("Maybe", Structs.Maybe(3, null));
            Say("MaybeNot", Structs.Maybe(null, 1.5));
            Say("Pair", Structs.Pair(new Pair<int, string> { First = 1, Second = "second" },
                new KeyValuePair<Small, OneFloat>(Small.Two, new OneFloat { F = 2.5f })));
            Say("Several", Structs.Several(new OneFloat { F = 1.5f }, new TwoFloats { X = 2.5f, Y = 3.5f },
                new IntAndDouble { I = 4, D = 5.5 }, new Longs2 { A = 6, B = 7 }, new ThreeFloats { X = 8.5f, Y = 9.5f, Z = 10.5f },
                new Longs3 { A = 11, B = 12, C = 13 }, new DoubleAndInt { D = 14.5, I = 15 }, new TwoFloats { X = 16.5f, Y = 17.5f },
                new Longs2 { A = 18, B = 19 }, new OneDouble { D = 20.5 }));

            var instance = new Instance();
            Say("Add", instance.Add(1, 2.5));
            Say("Large", instance.Large("four"));
            var counter = new Counter { Count = 40 };
            Say("Counter", counter.Add(2));

            Say("EchoInt", new Generic<int>().Echo(8));
            Say("EchoDouble", new Generic<double>().Echo(8.5));
            Say("EchoString", new Generic<string>().Echo("eight"));
            Say("EchoStruct", new Generic<IntAndDouble>().Echo(new IntAndDouble { I = 1, D = 2.5 }));
            Say("Choose", Generic<int>.Choose(1, 2.5f, new Pair<int, float> { First = 3, Second = 4.5f }));
            Say("ChooseShared", Generic<string>.Choose(" s", 2, new Pair<string, int> { First = "f", Second = 4 }));
        }
    }
}
