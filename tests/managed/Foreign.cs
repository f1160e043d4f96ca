// Threads that the runtime did not make: the system's own, each of which calls managed code once and ends.
//
//     Foreign [THREADS = 500]
//
// The runtime finds out later that such a thread has ended, and cleans up after several at once. The program forces
// collections, which is when it does.
using System;
using System.Runtime.InteropServices;
using System.Threading;

static class Foreign
{
    delegate IntPtr Body(IntPtr number);

    [DllImport("libc.so.6", EntryPoint = "pthread_create")]
    static extern int CreateByLibc(out IntPtr thread, IntPtr attributes, Body body, IntPtr number);

    [DllImport("libc.so.6", EntryPoint = "pthread_join")]
    static extern int JoinByLibc(IntPtr thread, IntPtr result);

    [DllImport("libpthread.so.0", EntryPoint = "pthread_create")]
    static extern int CreateByLibpthread(out IntPtr thread, IntPtr attributes, Body body, IntPtr number);

    [DllImport("libpthread.so.0", EntryPoint = "pthread_join")]
    static extern int JoinByLibpthread(IntPtr thread, IntPtr result);

    [DllImport("kernel32")]
    static extern IntPtr CreateThread(IntPtr attributes, UIntPtr stack, Body body, IntPtr number, int flags, IntPtr id);

    [DllImport("kernel32")]
    static extern int WaitForSingleObject(IntPtr handle, int milliseconds);

    [DllImport("kernel32")]
    static extern int CloseHandle(IntPtr handle);

    static readonly Body body = Work;
    static long sum;

    static int Main(string[] args)
    {
        int threads = args.Length > 0 ? int.Parse(args[0]) : 500;
        for (int started = 0; started < threads;)
        {
            IntPtr[] alive = new IntPtr[Math.Min(8, threads - started)];
            for (int i = 0; i < alive.Length; i++) alive[i] = Start(++started);
            foreach (IntPtr thread in alive) Join(thread);
            GC.Collect();
        }
        Console.WriteLine("threads={0} checksum={1}", threads, sum);
        return sum == (long)threads * (threads + 1) / 2 ? 0 : 1;
    }

    static IntPtr Work(IntPtr number)
    {
        Interlocked.Add(ref sum, number.ToInt64());
        return IntPtr.Zero;
    }

    static bool isWindows = Environment.OSVersion.Platform == PlatformID.Win32NT, isOldLibc;

    static IntPtr Start(int number)
    {
        IntPtr thread;
        if (isWindows) return CreateThread(IntPtr.Zero, UIntPtr.Zero, body, new IntPtr(number), 0, IntPtr.Zero);
        // Before glibc 2.34 threads had a library of their own.
        try
        {
            if (!isOldLibc)
            {
                CreateByLibc(out thread, IntPtr.Zero, body, new IntPtr(number));
                return thread;
            }
        }
        catch (EntryPointNotFoundException) { isOldLibc = true; }
        CreateByLibpthread(out thread, IntPtr.Zero, body, new IntPtr(number));
        return thread;
    }

    static void Join(IntPtr thread)
    {
        if (isWindows) { WaitForSingleObject(thread, -1); CloseHandle(thread); }
        else if (isOldLibc) JoinByLibpthread(thread, IntPtr.Zero);
        else JoinByLibc(thread, IntPtr.Zero);
    }
}
