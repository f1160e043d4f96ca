// Throws one exception that carries objects of every kind; then many, while other threads collect and write to what they carry.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;

enum Colour : short { Red = 3, Green = 7 }

struct Point { public int X; public long Y; public string Name; }

class Box<T> { public T Content; public int After = 11; }

class Chained { public string Text; public Chained Next; }

class Carrier : Exception
{
    public bool Yes = true;
    public char Letter = 'x';
    public byte Small = 200;
    public double Half = 0.5;
    public Colour Paint = Colour.Green;
    public DayOfWeek Day = DayOfWeek.Friday;
    public IntPtr Native = new IntPtr(-5);
    public string Nothing = null;
    public string Text = "a \"text\" of ünits \U0001F600";
    public Point Place = new Point { X = 1, Y = 2, Name = "inside" };
    public DateTime When = new DateTime(2026, 1, 2);
    public int? Maybe = 4;
    public object BoxedNumber = 42;
    public object BoxedColour = Colour.Red;
    public object BoxedPoint = new Point { X = 5, Y = -6, Name = "boxed" };
    public object BoxedTime = TimeSpan.FromTicks(77);
    public Box<int> OfNumber = new Box<int> { Content = 9 };
    public Box<string> OfText = new Box<string> { Content = "generic" };
    public Box<Point> OfPoint = new Box<Point> { Content = new Point { X = 8, Y = 9, Name = "argument" } };
    public int[] Numbers = { 1, 2, 3 };
    public string[] Texts = { "one", null, "three" };
    public Point[] Points = { new Point { X = 1 }, new Point { X = 2, Name = "second" } };
    public Colour[] Colours = { Colour.Red, Colour.Green };
    public short[,] Grid = { { 1, 2 }, { 3, 4 }, { 5, 6 } };
    public byte[] Empty = { };
    public object[] Mixed = { 1, "two", null, new object() };
    public Chained Chain;
    public Action Callback = () => { };
    private int hidden = 17;

    public Carrier(string message) : base(message, new InvalidOperationException("inner")) { }

    public int Hidden { get { return hidden; } }
}

class Objects
{
    static void Throw(Carrier carrier)
    {
        try { throw carrier; }
        catch (Carrier) { }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string MakeLong() { return new string('l', 5000); }

    static Chained Link(int length)
    {
        Chained chain = null;
        for (int n = 0; n < length; n++) chain = new Chained { Text = "link " + n, Next = chain };
        return chain;
    }

    static void Main(string[] args)
    {
        Throw(new Carrier("the message") { Chain = Link(3) });
        GC.KeepAlive(MakeLong());
        int rounds = args.Length == 0 ? 0 : int.Parse(args[0]);
        if (rounds == 0) return;

        bool isOver = false;
        var shared = new Carrier("shared");
        var collector = new Thread(() => { while (!Volatile.Read(ref isOver)) { GC.Collect(); GC.KeepAlive(new byte[100000]); } });
        var writer = new Thread(() =>
        {
            for (int n = 0; !Volatile.Read(ref isOver); n++)
            {
                shared.Text = new string('w', n % 1000);
                shared.Mixed = new object[n % 100];
                shared.Chain = Link(n % 20);
                shared.BoxedPoint = n % 2 == 0 ? null : (object)new Point { Name = shared.Text };
                shared.Texts[n % 3] = shared.Text;
            }
        });
        collector.Start();
        writer.Start();
        for (int round = 0; round < rounds; round++) Throw(shared);
        Volatile.Write(ref isOver, true);
        collector.Join();
        writer.Join();
        Console.WriteLine("threw " + rounds);
    }
}
