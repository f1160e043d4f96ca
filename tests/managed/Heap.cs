// A heap of known shape, for snapshots.
//
//     Heap [COUNT = 200000]
//
// Holds COUNT nodes in a list that a static field has, each with a byte array of its own; a pair in a weak table whose key a static
// field holds; an array of strings shared by two holders; and one pinned array. Answers commands on its standard input, a line each:
// grow N: adds N nodes. drop: lets go of all nodes. dump: does nothing. end, or the end of the input: ends.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

sealed class Node
{
    public Node Next;
    public byte[] Data;
}

sealed class Holder
{
    public Shared Both;
}

sealed class Shared
{
    public byte[] Data = new byte[1000];
}

sealed class Key { }

class Outer<T>
{
    public class Plain { }

    public class Inner<U, V>
    {
        public sealed class Innermost { }
    }
}

sealed class Secret
{
    public byte[] Data = new byte[5000];
}

// The runtime says of these fields only what they are called.
static class Bare
{
    public static object HeldBare;
}

struct Boxed
{
    public Key[] Keys;
}

static class Boxes
{
    public static Boxed HeldBoxed = new Boxed { Keys = new Key[5] };
}

static class Heap
{
    static Node nodes;
    static Holder first = new Holder(), second = new Holder();
    static Key key = new Key();
    static ConditionalWeakTable<Key, Secret> table = new ConditionalWeakTable<Key, Secret>();
    static List<Dictionary<string, int[]>> generics = new List<Dictionary<string, int[]>>();

    static object[] named =
    {
        new Outer<int>(), new Outer<string>.Plain(), new Outer<int?>.Inner<Key[], object>(),
        new Outer<decimal>.Inner<Dictionary<string, int[]>, List<Outer<bool>.Plain>>.Innermost(),
        new int?[3], new int[2][,], new Outer<byte>.Plain[1, 2][], new IntPtr[1],
    };

    static int Main(string[] args)
    {
        Grow(args.Length > 0 ? int.Parse(args[0]) : 200000);
        first.Both = second.Both = new Shared();
        table.Add(key, new Secret());
        generics.Add(new Dictionary<string, int[]> { { "one", new int[1] } });
        Bare.HeldBare = new Secret[1];
        GC.KeepAlive(Boxes.HeldBoxed);
        GCHandle pinned = GCHandle.Alloc(new long[7], GCHandleType.Pinned);
        Answer("ready");
        for (string line = Console.ReadLine(); line != null && line != "end"; line = Console.ReadLine())
        {
            string[] words = line.Split(' ');
            if (words[0] == "grow") Grow(int.Parse(words[1]));
            if (words[0] == "drop") nodes = null;
            Answer("done " + line);
        }
        pinned.Free();
        GC.KeepAlive(named);
        return 0;
    }

    static void Grow(int count)
    {
        for (int i = 0; i < count; i++) nodes = new Node { Next = nodes, Data = new byte[16] };
    }

    static void Answer(string line)
    {
        Console.WriteLine(line);
        Console.Out.Flush();
    }
}
