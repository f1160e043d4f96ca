// A small world of everything that a profiler can ask about: fields of each kind, arrays, strings, a thread, an exception.
//
//     World
//
// The field tokens matter: the fields of Holder are declared in this order, and Holder is the first class with fields.
using System;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;

class Holder
{
    public int Number = 7;
    public string Text = "held";
    public Holder Next;
    public static int Ordinary = 41;
    [ThreadStatic] public static int PerThread;
    public const int Literal = 5;
}

struct Pair { public int A; public long B; }

class WorldException : Exception
{
    public Holder Held;
    public WorldException(Holder held) : base("world") { Held = held; }
}

static class World
{
    static object kept, boxed, caught;
    static byte[] bytes;

    static int Main()
    {
        // The initializer's bytes stand in the file: a static field with an address in the image.
        bytes = new byte[] { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 };
        kept = new int[3, 4];
        boxed = new Pair { A = 1, B = 2 };
        Holder.Ordinary++;
        Holder.PerThread = 17;
        Thread other = new Thread(() => Holder.PerThread = 18);
        other.Start();
        other.Join();
        // Loaded from memory, with what passes for symbols.
        Assembly.Load(File.ReadAllBytes(typeof(World).Assembly.Location), new byte[] { 1, 2, 3, 4, 5 });
        Thread.CurrentThread.Name = "prepared";
        Prepared();
        Waste();
        Fail();
        GC.Collect();
        Collected();
        Console.WriteLine("ordinary={0} bytes={1}", Holder.Ordinary, bytes.Length);
        return kept != null && boxed != null && caught != null ? 0 : 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Fail()
    {
        try { throw new WorldException(new Holder { Next = new Holder() }); }
        catch (WorldException error) { caught = error; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Waste() { return new int[5, 6].Length; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Prepared() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Collected() { }
}
