// Managed code under native code under managed code, most of the time: qsort of the C library calls a managed method back,
// which sleeps now and then in native code.
//
//     Between [MILLISECONDS = 1000]
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

static class Between
{
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    delegate int Order(IntPtr a, IntPtr b);

    [DllImport("msvcrt.dll", EntryPoint = "qsort", CallingConvention = CallingConvention.Cdecl)]
    static extern void SortByMsvcrt(int[] numbers, UIntPtr count, UIntPtr size, Order order);

    [DllImport("libc.so.6", EntryPoint = "qsort", CallingConvention = CallingConvention.Cdecl)]
    static extern void SortByLibc(int[] numbers, UIntPtr count, UIntPtr size, Order order);

    [DllImport("libc.so.6")]
    static extern int usleep(uint microseconds);

    [DllImport("kernel32")]
    static extern int SleepEx(int milliseconds, int alertable);

    static readonly bool isWindows = Environment.OSVersion.Platform == PlatformID.Win32NT;
    static readonly Order order = Compares;
    static int compared;

    static int Main(string[] args)
    {
        int milliseconds = args.Length > 0 ? int.Parse(args[0]) : 1000;
        Stopwatch watch = Stopwatch.StartNew();
        bool isSorted = true;
        while (watch.ElapsedMilliseconds < milliseconds) isSorted &= Sorts();
        Console.WriteLine("sorted {0}", isSorted);
        return isSorted ? 0 : 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Sorts()
    {
        int[] numbers = new int[64];
        for (int i = 0; i < numbers.Length; i++) numbers[i] = i * 37 % 64;
        if (isWindows) SortByMsvcrt(numbers, (UIntPtr)numbers.Length, (UIntPtr)4, order);
        else SortByLibc(numbers, (UIntPtr)numbers.Length, (UIntPtr)4, order);
        for (int i = 0; i < numbers.Length; i++) if (numbers[i] != i) return false;
        return true;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Compares(IntPtr a, IntPtr b)
    {
        if (++compared % 512 == 0) { if (isWindows) SleepEx(1, 0); else usleep(1000); }
        return Burns() + Marshal.ReadInt32(a).CompareTo(Marshal.ReadInt32(b));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Burns()
    {
        ulong v = 1;
        for (int i = 0; i < 4096; i++) v = v * 6364136223846793005UL + 1442695040888963407UL;
        return v == 42 ? 1 : 0;
    }
}
