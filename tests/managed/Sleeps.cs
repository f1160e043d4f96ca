// Threads that wait in native code as careless code does: whoever interrupts such a wait is seen. For Linux.
//
//     Sleeps: says "ready", reads lines and answers each, until "end" or the end of the input. Then it says on its standard error how many
//     waits of each kind were cut short, and how many SIGURGs a thread got that blocks them and takes them by `sigtimedwait`.
using System;
using System.Runtime.InteropServices;
using System.Threading;

static class Sleeps
{
    struct Time { public IntPtr Seconds, Rest; }

    [DllImport("libc.so.6", EntryPoint = "nanosleep")] static extern int Nanosleep(ref Time time, IntPtr left);
    [DllImport("libc.so.6", EntryPoint = "usleep")] static extern int Usleep(uint microseconds);
    [DllImport("libc.so.6", EntryPoint = "sleep")] static extern uint Sleep(uint seconds);
    [DllImport("libc.so.6", EntryPoint = "poll")] static extern int Poll(IntPtr files, UIntPtr count, int milliseconds);
    [DllImport("libc.so.6", EntryPoint = "select")] static extern int Select(int count, IntPtr read, IntPtr write, IntPtr other, ref Time time);
    [DllImport("libc.so.6", EntryPoint = "sigtimedwait")] static extern int Wait(ref Signals signals, IntPtr info, ref Time time);
    [DllImport("libc.so.6", EntryPoint = "pthread_sigmask")] static extern int Mask(int how, ref Signals signals, IntPtr old);
    [StructLayout(LayoutKind.Sequential, Size = 128)] struct Signals { public ulong First; }

    const ulong Urgent = 1UL << 22;
    static volatile bool isOver;
    static int heard;
    static readonly int[] cut = new int[5];

    static void Start(int which, Func<bool> isWhole)
    {
        new Thread(() => { while (!isOver) if (!isWhole()) Interlocked.Increment(ref cut[which]); }) { IsBackground = true }.Start();
    }

    static void Listen()
    {
        var signals = new Signals { First = Urgent };
        Mask(0, ref signals, IntPtr.Zero);
        while (!isOver)
        {
            double sum = 0;
            for (int i = 0; i < 3000000; i++) sum += Math.Sqrt(i);
            var time = new Time { Rest = new IntPtr(1000000 + (int)sum % 2) };
            if (Wait(ref signals, IntPtr.Zero, ref time) > 0) Interlocked.Increment(ref heard);
        }
    }

    static int Main()
    {
        Start(0, () => { var time = new Time { Seconds = new IntPtr(600) }; return Nanosleep(ref time, IntPtr.Zero) == 0; });
        Start(1, () => Usleep(600000000) == 0);
        Start(2, () => Sleep(600) == 0);
        Start(3, () => Poll(IntPtr.Zero, UIntPtr.Zero, 600000) == 0);
        Start(4, () => { var time = new Time { Seconds = new IntPtr(600) }; return Select(0, IntPtr.Zero, IntPtr.Zero, IntPtr.Zero, ref time) == 0; });
        new Thread(Listen) { IsBackground = true }.Start();
        Thread.Sleep(50);
        Console.WriteLine("ready");
        for (string line = Console.ReadLine(); line != null && line != "end"; line = Console.ReadLine())
        {
            if (line.StartsWith("throw")) try { throw new InvalidOperationException(); } catch (InvalidOperationException) { }
            Thread.Sleep(100);
            Console.WriteLine("done " + line);
        }
        isOver = true;
        Console.Error.WriteLine("cut: {0}, heard: {1}", string.Join(" ", cut), heard);
        return 0;
    }
}
