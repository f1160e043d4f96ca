// Leaks in four known ways, for SECONDS or until its input ends; says `ready` once it leaks.
//
//     Leaky [PAUSE = 10] [SIZE = 1] [SECONDS]
//
// Every PAUSE milliseconds it adds SIZE of each: a View that subscribes to a static event and is never unsubscribed; a Report that
// a static cache keeps; a Job with a Timer that is never disposed, so that the
// runtime's queue of timers keeps it; and a Node in front of a list that one thread
// holds. It also makes garbage, and a Ring of Buffers that is refilled but does not grow.
using System;
using System.Collections.Generic;
using System.Threading;

sealed class Bus
{
    public static event EventHandler Changed;
    public static void Raise() { if (Changed != null) Changed(null, EventArgs.Empty); }
}

sealed class View
{
    readonly byte[] pixels = new byte[1000];
    public View() { Bus.Changed += OnChanged; }
    void OnChanged(object sender, EventArgs args) { pixels[0]++; }
}

sealed class Report
{
    public readonly string Text;
    public Report(int number) { Text = new string('x', 400) + number; }
}

static class Cache
{
    public static readonly Dictionary<int, Report> Reports = new Dictionary<int, Report>();
}

sealed class Job
{
    readonly byte[] data = new byte[500];
    readonly Timer timer;
    public Job() { timer = new Timer(Work, null, 3600 * 1000, 3600 * 1000); }
    void Work(object state) { data[0]++; GC.KeepAlive(timer); }
}

sealed class Node
{
    public Node Next;
    public byte[] Data = new byte[200];
}

sealed class Buffer
{
    public byte[] Bytes = new byte[3000];
}

static class Leaky
{
    static readonly Buffer[] ring = new Buffer[500];

    static int Main(string[] args)
    {
        int pause = args.Length > 0 ? int.Parse(args[0]) : 10, size = args.Length > 1 ? int.Parse(args[1]) : 1;
        for (int i = 0; i < ring.Length; i++) ring[i] = new Buffer();
        new Thread(() => Leak(pause, size)) { IsBackground = true }.Start();
        if (args.Length > 2) Thread.Sleep(1000 * int.Parse(args[2]));
        else while (Console.ReadLine() != null) { }
        return 0;
    }

    static void Leak(int pause, int size)
    {
        Node list = null;
        for (int round = 0; ; round++)
        {
            for (int i = 0; i < size; i++)
            {
                new View();
                int number = round * size + i;
                Cache.Reports[number] = new Report(number);
                new Job();
                list = new Node { Next = list };
                ring[number % ring.Length] = new Buffer();
            }
            if (round == 0) { Console.WriteLine("ready"); Console.Out.Flush(); }
            Thread.Sleep(pause);
            GC.KeepAlive(list);
        }
    }
}
