// target: 8.0
// Allocates in known shares of the bytes: a quarter are orders, and of the byte arrays one method allocates twice as many as the
// other. For the example `allocations`.
//
//     Allocations [MEGABYTES = 400]

using System;
using System.Runtime.CompilerServices;

// 1,024 bytes with its header; a byte[1000] has as many.
unsafe struct Fields { public fixed byte Bytes[1008]; }
class Order { public Fields Fields = default; }

static class Program
{
    static object last;

    static int Main(string[] args)
    {
        int megabytes = args.Length > 0 ? int.Parse(args[0]) : 400;
        for (int i = 0; i < megabytes * 256; i++)
        {
            Parses();
            Reads();
            Copies();
            Copies();
        }
        Console.WriteLine($"allocated={megabytes}");
        return last is byte[] ? 0 : 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Parses() => last = new Order();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Reads() => last = new byte[1000];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Copies() => last = new byte[1000];
}
