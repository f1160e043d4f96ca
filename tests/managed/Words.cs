// Runs native code without unwind information whose frames look like a chain of callers in precompiled code that has never
// run.
//
//     Words [MILLISECONDS = 1000]
using System;
using System.Globalization;
using System.IO;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Threading;

static class Words
{
    [DllImport("libc", EntryPoint = "mmap")]
    static extern IntPtr Map(IntPtr start, UIntPtr size, int access, int flags, int file, IntPtr offset);

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    delegate void Spin(long[] words, IntPtr isOver);

    const int Count = 128, Rounds = 16;

    // Makes a chain of frames, with a word as the return address of each, and waits until it is over.
    static readonly byte[] Code =
    {
        0x55, 0x48, 0x81, 0xEC, 0, 8, 0, 0, // push rbp; sub rsp, 2048
        0xB9, 128, 0, 0, 0, // mov ecx, 128
        0x48, 0x8B, 0x44, 0xCF, 0xF8, // mov rax, [rdi + rcx * 8 - 8]
        0x48, 0x89, 0xCA, 0x48, 0xC1, 0xE2, 4, 0x48, 0x01, 0xE2, // mov rdx, rcx; shl rdx, 4; add rdx, rsp
        0x48, 0x89, 0x42, 0xF8, 0x48, 0x89, 0x52, 0xF0, // mov [rdx - 8], rax; mov [rdx - 16], rdx
        0xFF, 0xC9, 0x75, 0xE5, // dec ecx; jnz -27
        0x48, 0x89, 0xE5, // mov rbp, rsp
        0x83, 0x3E, 0, 0x74, 0xFB, // cmp dword [rsi], 0; je -5
        0x48, 0x81, 0xC4, 0, 8, 0, 0, 0x5D, 0xC3, // add rsp, 2048; pop rbp; ret
    };

    static int Main(string[] args)
    {
        int milliseconds = args.Length > 0 ? int.Parse(args[0]) : 1000;
        // A large library of which nothing runs.
        Assembly.Load("System.Private.Xml").GetType("System.Xml.XmlDocument", true);
        long start, end;
        if (!Find("System.Private.Xml.dll", out start, out end)) { Console.WriteLine("no precompiled code"); return 2; }
        const int ReadWriteRun = 7, PrivateAnonymous = 0x22;
        IntPtr memory = Map(IntPtr.Zero, new UIntPtr(4096), ReadWriteRun, PrivateAnonymous, -1, IntPtr.Zero);
        Marshal.Copy(Code, 0, memory, Code.Length);
        Spin spin = (Spin)Marshal.GetDelegateForFunctionPointer(memory, typeof(Spin));
        IntPtr isOver = Marshal.AllocHGlobal(4);
        for (int round = 0; round < Rounds; round++)
        {
            long[] words = new long[Count];
            for (int i = 0; i < Count; i++) words[i] = start + (end - start) / (Rounds * Count) * (round * Count + i) + 1;
            Marshal.WriteInt32(isOver, 0);
            Thread thread = new Thread(() => spin(words, isOver));
            thread.Start();
            Thread.Sleep(milliseconds / Rounds);
            Marshal.WriteInt32(isOver, 1);
            thread.Join();
        }
        Console.WriteLine("over");
        return 0;
    }

    /// Where a library that may run is in memory.
    static bool Find(string library, out long start, out long end)
    {
        start = end = 0;
        foreach (string line in File.ReadAllLines("/proc/self/maps"))
        {
            if (!line.EndsWith(library) || !line.Contains("r-xp")) continue;
            string[] range = line.Substring(0, line.IndexOf(' ')).Split('-');
            start = long.Parse(range[0], NumberStyles.HexNumber);
            end = long.Parse(range[1], NumberStyles.HexNumber);
        }
        return end > 0;
    }
}
