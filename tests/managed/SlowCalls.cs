// Calls of known length, for live/cli/slow_calls.rs: each prints how long it has taken, by the program's own clock.
//
//     SlowCalls FACTOR [stuck [DELAY]]
//
// All times are multiples of FACTOR. With `stuck`, a call has not returned when the program ends. It begins DELAY
// milliseconds after its start.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Slow
{
    enum Kind { Small, Large }

    static class Orders
    {
        static readonly object Lock = new object();

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Burn(int milliseconds, string why) { Work.Spin(milliseconds); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Pause(int milliseconds, Kind kind, object nothing) { Work.Rest(milliseconds); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Fails(string text, int milliseconds)
        {
            Work.Rest(milliseconds);
            throw new InvalidOperationException(text);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static int Deep(int levels, int milliseconds)
        {
            if (levels == 0) { Work.Rest(milliseconds); return 0; }
            return Deep(levels - 1, milliseconds) + 1;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Waits(int milliseconds)
        {
            Thread holder = Work.Hold(Lock, milliseconds);
            Work.Locks(Lock);
            holder.Join();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static int Quick(int value) { return value * 31; }
    }

    static class Work
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Spin(int milliseconds)
        {
            Stopwatch clock = Stopwatch.StartNew();
            long sum = 0;
            while (clock.ElapsedMilliseconds < milliseconds) for (int i = 0; i < 1000; i++) sum += i;
            GC.KeepAlive(sum);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Rest(int milliseconds) { Thread.Sleep(milliseconds); }

        /// A thread that holds the lock already, for that long.
        public static Thread Hold(object what, int milliseconds)
        {
            ManualResetEvent held = new ManualResetEvent(false);
            Thread holder = new Thread(delegate() { lock (what) { held.Set(); Thread.Sleep(milliseconds); } });
            holder.Start();
            held.WaitOne();
            return holder;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Locks(object what) { lock (what) { GC.KeepAlive(what); } }
    }

    static class Program
    {
        static void Time(string name, Action call)
        {
            Stopwatch clock = Stopwatch.StartNew();
            try { call(); }
            catch (InvalidOperationException) { }
            Console.WriteLine(name + " " + clock.Elapsed.TotalMilliseconds.ToString("F3", System.Globalization.CultureInfo.InvariantCulture));
        }

        static void Main(string[] args)
        {
            int factor = int.Parse(args[0]);
            if (args.Length > 2) Thread.Sleep(int.Parse(args[2]));
            // The first call of a method is compiled within its caller's time.
            Orders.Quick(1);
            Orders.Pause(0, Kind.Small, null);
            Orders.Burn(0, null);
            Orders.Deep(0, 0);
            Orders.Waits(0);
            try { Orders.Fails(null, 0); }
            catch (InvalidOperationException) { }
            Console.WriteLine("ready");
            Console.Out.Flush();
            Time("Pause", delegate { Orders.Pause(70 * factor, Kind.Large, null); });
            Time("Burn", delegate { Orders.Burn(100 * factor, "it's \"busy\""); });
            Time("Fails", delegate { Orders.Fails("too late", 55 * factor); });
            Time("Deep", delegate { Orders.Deep(50, 40 * factor); });
            int sum = 0;
            for (int i = 0; i < 100000; i++) sum += Orders.Quick(i);
            Thread thread = new Thread(delegate() { Time("Waits", delegate { Orders.Waits(30 * factor); }); });
            thread.Name = "waiter";
            thread.Start();
            thread.Join();
            // One that is too fast.
            Orders.Pause(1, Kind.Small, "object");
            Console.WriteLine("sum " + sum);
            if (args.Length > 1)
            {
                Thread last = new Thread(delegate() { Orders.Pause(3600000, Kind.Large, args); });
                last.IsBackground = true;
                last.Start();
                Thread.Sleep(20 * factor);
                Console.WriteLine("stuck");
            }
        }
    }
}
