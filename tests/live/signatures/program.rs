//! Writes a C# program that calls methods of many signatures, each chosen by chance, but always the same chance.
//!
//! Every method takes in all of its arguments, to the last bit, and computes its result from them; the caller checks
//! the passed values once more afterwards. The program's output depends on all of it.

use std::fmt::Write as _;

/// Chance: xorshift64*.
struct Chance(u64);

impl Chance {
    /// Less than `below`.
    fn number(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % below
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.number(from.len())]
    }
}

/// Types that the program knows how to make and to take in, beside its own structs.
const TYPES: [&str; 31] = [
    "sbyte",
    "byte",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "char",
    "bool",
    "float",
    "double",
    "float",
    "double",
    "decimal",
    "string",
    "object",
    "IntPtr",
    "UIntPtr",
    "DateTime",
    "Guid",
    "int?",
    "double?",
    "Narrow",
    "Wide",
    "Vector2",
    "Vector3",
    "Vector4",
    "Quaternion",
    "Complex",
    "Pair<float>",
];

/// The types of fields of structs.
const FIELDS: [&str; 15] = [
    "sbyte", "byte", "short", "ushort", "int", "uint", "long", "ulong", "char", "float", "double", "float", "double",
    "string", "Vector4",
];

/// Structs of one floating-point type, which some systems pass in vector registers.
const HOMOGENEOUS: [(&str, usize); 9] = [
    ("float", 1),
    ("float", 2),
    ("float", 3),
    ("float", 4),
    ("double", 1),
    ("double", 2),
    ("double", 3),
    ("double", 4),
    ("Vector4", 2),
];

/// How a method is called.
const KINDS: [&str; 9] =
    ["static", "instance", "virtual", "struct", "interface", "delegate", "generic", "generic class", "by-ref return"];

/// The program, with so many methods.
pub(super) fn write(methods: usize, seed: u64) -> String {
    let mut chance = Chance(seed);
    let mut structs: Vec<(String, Vec<&str>)> = Vec::new();
    for (number, (of, count)) in HOMOGENEOUS.iter().enumerate() {
        structs.push((format!("H{number}"), vec![*of; *count]));
    }
    for number in 0..40 {
        let count = 1 + chance.number(9);
        structs.push((format!("S{number}"), (0..count).map(|_| chance.pick(&FIELDS)).collect()));
    }

    let mut text = String::from(FRAME);
    for (name, fields) in &structs {
        let declared = each(fields, |at, of| format!("public {of} F{at};"));
        let taken = each(fields, |at, _| format!("Take(a.F{at});"));
        let made = each(fields, |at, _| format!("Make(out a.F{at});"));
        let _ = writeln!(text, "struct {name} {{ {declared} }}");
        let _ = writeln!(text, "static partial class D {{");
        let _ = writeln!(text, "    public static void Take({name} a) {{ {taken} }}");
        let _ = writeln!(text, "    public static void Make(out {name} a) {{ a = default({name}); {made} }}\n}}");
    }
    let types: Vec<&str> = TYPES.into_iter().chain(structs.iter().map(|(name, _)| name.as_str())).collect();
    let mut calls = String::new();
    for number in 0..methods {
        let kind = KINDS[number % KINDS.len()];
        write_method(&mut text, &mut chance, &types, number, kind);
        let _ = writeln!(calls, "        D.Begin({number}, round); C{number}.Call(); D.End({number});");
    }
    let _ = writeln!(text, "static class Calls\n{{\n    public const int Methods = {methods};\n");
    let _ = writeln!(text, "    public static void All(int round)\n    {{\n{calls}    }}\n}}");
    text
}

fn each(of: &[&str], one: impl Fn(usize, &str) -> String) -> String {
    of.iter().enumerate().map(|(at, of)| one(at, of)).collect::<Vec<_>>().join(" ")
}

/// One method, in a class of its own with its caller.
fn write_method(text: &mut String, chance: &mut Chance, types: &[&str], number: usize, kind: &str) {
    let count = chance.number(21);
    let parameters: Vec<(&str, &str)> =
        (0..count).map(|_| (chance.pick(&["", "", "", "", "ref ", "out "]), chance.pick(types))).collect();
    let result = if chance.number(8) == 0 && kind != "by-ref return" { "void" } else { chance.pick(types) };
    let generic = kind == "generic" || kind == "generic class";
    let t = chance.pick(types);
    let u = chance.pick(types);

    let mut list: Vec<String> =
        parameters.iter().enumerate().map(|(at, (how, of))| format!("{how}{of} a{at}")).collect();
    let mut passed: Vec<String> = parameters.iter().enumerate().map(|(at, (how, _))| format!("{how}a{at}")).collect();
    let made: String =
        parameters.iter().enumerate().map(|(at, (_, of))| format!("{of} a{at}; D.Make(out a{at}); ")).collect();
    let taken: String = (0..count).map(|at| format!("D.Take(a{at}); ")).collect();
    // The target of a `ref` parameter changes; an `out` has no value to read before.
    let body_in: String = parameters
        .iter()
        .enumerate()
        .map(|(at, (how, _))| match *how {
            "" => format!("D.Take(a{at}); "),
            "ref " => format!("D.Take(a{at}); D.Make(out a{at}); "),
            _ => format!("D.Make(out a{at}); "),
        })
        .collect();
    let mut locals = made;
    let mut taken_after = taken;
    let mut returned = if result == "void" { String::new() } else { format!("{result} r; D.Make(out r); return r;") };
    let mut returns = result.to_owned();
    if kind == "by-ref return" {
        list.insert(0, format!("ref {result} into"));
        passed.insert(0, "ref into".into());
        locals += &format!("{result} into; D.Make(out into); ");
        taken_after += "D.Take(into); ";
        returned = "D.Make(out into); return ref into;".into();
        returns = format!("ref {result}");
    }
    if generic {
        list.insert(count / 2, "T t".into());
        passed.insert(count / 2, "t".into());
        list.push("U u".into());
        passed.push("u".into());
        locals += &format!("{t} t; D.Make(out t); {u} u; D.Make(out u); ");
        taken_after += "D.Take(t); D.Take(u); ";
    }
    let list = list.join(", ");
    let passed = passed.join(", ");
    // A type parameter says nothing of its fields, so the value is read through an array of bytes.
    let body_generic = if generic { "D.TakeBytes(t); D.TakeBytes(u); " } else { "" };
    let body = format!("{{ {body_in}{body_generic}{returned} }}");
    let attribute = "[MethodImpl(MethodImplOptions.NoInlining)]";
    let name = format!("M{number}");
    let (declared, target) = match kind {
        "static" | "by-ref return" => {
            (format!("static class C{number} {{ {attribute} static {returns} {name}({list}) {body}"), name.clone())
        }
        "instance" => (
            format!("class C{number} {{ {attribute} {returns} {name}({list}) {body}"),
            format!("new C{number}().{name}"),
        ),
        "virtual" => (
            format!(
                "abstract class B{number} {{ public abstract {returns} {name}({list}); }}\n\
                 class C{number} : B{number} {{ {attribute} public override {returns} {name}({list}) {body}"
            ),
            format!("((B{number})new C{number}()).{name}"),
        ),
        "struct" => (
            format!(
                "struct C{number} {{ int own; {attribute} {returns} {name}({list}) {{ D.Take(own++); {}",
                &body[2..]
            ),
            format!("new C{number} {{ own = 7 }}.{name}"),
        ),
        "interface" => (
            format!(
                "interface I{number} {{ {returns} {name}({list}); }}\n\
                 class C{number} : I{number} {{ {attribute} public {returns} {name}({list}) {body}"
            ),
            format!("((I{number})new C{number}()).{name}"),
        ),
        "delegate" => (
            format!(
                "delegate {returns} G{number}({list});\n\
                 class C{number} {{ {attribute} {} {returns} {name}({list}) {body}",
                if number.is_multiple_of(2) { "static" } else { "" }
            ),
            format!(
                "new G{number}({}{name})",
                if number.is_multiple_of(2) { String::new() } else { format!("new C{number}().") }
            ),
        ),
        "generic" => (
            format!("static class C{number} {{ {attribute} static {returns} {name}<T, U>({list}) {body}"),
            format!("{name}<{t}, {u}>"),
        ),
        _ => (
            format!(
                "class N{number}<T, U> {{ {attribute} public {returns} {name}({list}) {body} }}\n\
                 static class C{number} {{"
            ),
            format!("new N{number}<{t}, {u}>().{name}"),
        ),
    };
    let call = match result {
        "void" => format!("{target}({passed});"),
        _ if kind == "by-ref return" => format!("ref {result} r = ref {target}({passed}); D.Take(r); D.Make(out r);"),
        _ => format!("{result} r = {target}({passed}); D.Take(r);"),
    };
    let _ =
        writeln!(text, "{declared}\n    {attribute} public static void Call() {{ {locals}{call} {taken_after}}}\n}}");
}

/// The parts that are not random.
const FRAME: &str = r#"// reference: System.Numerics
using System;
using System.Numerics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Signatures
{
    // Long enough for the methods to be compiled a second time, optimised.
    static int Main(string[] args)
    {
        int rounds = int.Parse(args[0]);
        for (int round = 0; round < rounds; round++)
        {
            Calls.All(round);
            if (round == rounds / 2) Thread.Sleep(400);
        }
        for (int i = 0; i < Calls.Methods; i++) Console.WriteLine("M{0} {1:x16}", i, D.Ends[i]);
        return 0;
    }
}

enum Narrow : byte { One = 1, Two = 200 }
enum Wide : long { One = 1, Two = long.MinValue }
struct Pair<T> { public T A; public int Between; public T B; }

// Makes values of all types, and takes them in.
static partial class D
{
    public static ulong[] Ends = new ulong[Calls.Methods];
    static ulong sum, seed;

    public static void Begin(int method, int round) { sum = Ends[method]; seed = (ulong)method * 0x9E3779B97F4A7C15UL + (ulong)round; }
    public static void End(int method) { Ends[method] = sum; }

    static ulong Next() { seed += 0x9E3779B97F4A7C15UL; ulong z = seed; z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9UL; z = (z ^ z >> 27) * 0x94D049BB133111EBUL; return z ^ z >> 31; }
    static void Fold(ulong bits) { sum = (sum << 7 | sum >> 57) * 0x9E3779B97F4A7C15UL + bits; seed ^= sum; }

    public static void Take(sbyte a) { Fold((ulong)a); }
    public static void Take(byte a) { Fold(a); }
    public static void Take(short a) { Fold((ulong)a); }
    public static void Take(ushort a) { Fold(a); }
    public static void Take(int a) { Fold((ulong)a); }
    public static void Take(uint a) { Fold(a); }
    public static void Take(long a) { Fold((ulong)a); }
    public static void Take(ulong a) { Fold(a); }
    public static void Take(char a) { Fold(a); }
    public static void Take(bool a) { Fold(a ? 1UL : 2UL); }
    public static void Take(float a) { Fold((ulong)BitConverter.DoubleToInt64Bits(a)); }
    public static void Take(double a) { Fold((ulong)BitConverter.DoubleToInt64Bits(a)); }
    public static void Take(decimal a) { foreach (int part in decimal.GetBits(a)) Fold((ulong)part); }
    public static void Take(string a) { foreach (char c in a) Fold(c); }
    public static void Take(object a) { Take((long)a); }
    public static void Take(IntPtr a) { Fold((ulong)a.ToInt64()); }
    public static void Take(UIntPtr a) { Fold(a.ToUInt64()); }
    public static void Take(DateTime a) { Fold((ulong)a.Ticks); }
    public static void Take(Guid a) { foreach (byte b in a.ToByteArray()) Fold(b); }
    public static void Take(int? a) { Fold(a.HasValue ? (ulong)a.Value : 99); }
    public static void Take(double? a) { Take(a.HasValue ? a.Value : 99.5); }
    public static void Take(Narrow a) { Fold((ulong)a); }
    public static void Take(Wide a) { Fold((ulong)a); }
    public static void Take(Vector2 a) { Take(a.X); Take(a.Y); }
    public static void Take(Vector3 a) { Take(a.X); Take(a.Y); Take(a.Z); }
    public static void Take(Vector4 a) { Take(a.X); Take(a.Y); Take(a.Z); Take(a.W); }
    public static void Take(Quaternion a) { Take(a.X); Take(a.Y); Take(a.Z); Take(a.W); }
    public static void Take(Complex a) { Take(a.Real); Take(a.Imaginary); }
    public static void Take(Pair<float> a) { Take(a.A); Take(a.Between); Take(a.B); }

    public static void Make(out sbyte a) { a = (sbyte)Next(); }
    public static void Make(out byte a) { a = (byte)Next(); }
    public static void Make(out short a) { a = (short)Next(); }
    public static void Make(out ushort a) { a = (ushort)Next(); }
    public static void Make(out int a) { a = (int)Next(); }
    public static void Make(out uint a) { a = (uint)Next(); }
    public static void Make(out long a) { a = (long)Next(); }
    public static void Make(out ulong a) { a = Next(); }
    public static void Make(out char a) { a = (char)Next(); }
    public static void Make(out bool a) { a = Next() % 2 == 0; }
    public static void Make(out float a) { a = (int)Next() / 1024f; }
    public static void Make(out double a) { a = (long)Next() / 4096.0; }
    public static void Make(out decimal a) { a = new decimal((int)Next(), (int)Next(), (int)Next(), Next() % 2 == 0, (byte)(Next() % 28)); }
    public static void Make(out string a) { a = "s" + Next() % 1000; }
    public static void Make(out object a) { a = (long)Next(); }
    public static void Make(out IntPtr a) { a = new IntPtr((long)Next()); }
    public static void Make(out UIntPtr a) { a = new UIntPtr(Next()); }
    public static void Make(out DateTime a) { a = new DateTime((long)(Next() >> 3)); }
    public static void Make(out Guid a) { a = new Guid((int)Next(), (short)Next(), (short)Next(), (byte)Next(), (byte)Next(), (byte)Next(), (byte)Next(), (byte)Next(), (byte)Next(), (byte)Next(), (byte)Next()); }
    public static void Make(out int? a) { a = Next() % 4 == 0 ? (int?)null : (int)Next(); }
    public static void Make(out double? a) { double d; Make(out d); a = Next() % 4 == 0 ? (double?)null : d; }
    public static void Make(out Narrow a) { a = (Narrow)Next(); }
    public static void Make(out Wide a) { a = (Wide)Next(); }
    public static void Make(out Vector2 a) { float x, y; Make(out x); Make(out y); a = new Vector2(x, y); }
    public static void Make(out Vector3 a) { float x, y, z; Make(out x); Make(out y); Make(out z); a = new Vector3(x, y, z); }
    public static void Make(out Vector4 a) { float x, y, z, w; Make(out x); Make(out y); Make(out z); Make(out w); a = new Vector4(x, y, z, w); }
    public static void Make(out Quaternion a) { Vector4 v; Make(out v); a = new Quaternion(v.X, v.Y, v.Z, v.W); }
    public static void Make(out Complex a) { double x, y; Make(out x); Make(out y); a = new Complex(x, y); }
    public static void Make(out Pair<float> a) { a = default(Pair<float>); Make(out a.A); Make(out a.Between); Make(out a.B); }

    // By way of the object, which is a copy of it.
    public static void TakeBytes<T>(T a)
    {
        object boxed = a;
        if (boxed == null) { Fold(77); return; }
        typeof(D).GetMethod("Take", new[] { boxed.GetType() }).Invoke(null, new[] { boxed });
    }
}
"#;
