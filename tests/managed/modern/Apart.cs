// target: 8.0
// Native code calls methods that other methods were inlined into, if nothing keeps them apart.
//
// It answers each line of its input: `sort` after calls that are compiled only then, while another thread collects.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static unsafe class Apart
{
    [DllImport("libc")]
    static extern void qsort(int* elements, nint count, nint size, delegate* unmanaged<int*, int*, int> compare);

    [UnmanagedCallersOnly]
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    static int Compare(int* a, int* b) => Order(*a, *b);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static int Order(int a, int b) => a - b;

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    static int Warm(int number) => Order(number, 1);

    static volatile bool isOver;

    static int Main(string[] args)
    {
        if (Warm(args.Length) > 0) return 1;
        Say("ready");
        for (string line = Console.ReadLine(); line != null; line = Console.ReadLine())
        {
            if (line == "sort") Sort();
            Say("done " + line);
        }
        return 0;
    }

    static void Sort()
    {
        Console.Error.WriteLine("it sorts");
        Thread collects = new Thread(() => { while (!isOver) GC.Collect(0); });
        collects.Start();
        int* items = stackalloc int[8];
        for (int round = 0; round < 20_000; round++)
        {
            for (int i = 0; i < 8; i++) items[i] = (round * 31 + i * 17) % 101;
            qsort(items, 8, 4, &Compare);
            for (int i = 1; i < 8; i++) if (items[i - 1] > items[i]) throw new InvalidOperationException("not sorted");
        }
        isOver = true;
        collects.Join();
    }

    static void Say(string line)
    {
        Console.WriteLine(line);
        Console.Out.Flush();
    }
}
