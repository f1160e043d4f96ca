// Allocates many small objects of a few classes, in turn.
//
//     Alloc [OBJECTS = 50000000] [CLASSES = 4, of 1 to 4]
//
// The last 1024 stay alive, so that no compiler can leave the allocations out. The checksum is the same at every run;
// the elapsed time, on its own line, is of the loop alone.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;

abstract class Shape { public int Tag; }
class Dot : Shape { }
class Line : Shape { public int Length = 1; }
class Circle : Shape { public double Radius = 1; }
class Box<T> : Shape { public T Content = default(T); }

static class Alloc
{
    static readonly Shape[] Recent = new Shape[1024];

    static int Main(string[] args)
    {
        int objects = args.Length > 0 ? int.Parse(args[0]) : 50000000, classes = args.Length > 1 ? int.Parse(args[1]) : 4;
        Run(10000, classes);
        Stopwatch clock = Stopwatch.StartNew();
        long checksum = Run(objects, classes);
        clock.Stop();
        Console.WriteLine("objects={0} checksum={1}", objects, checksum);
        Console.WriteLine("elapsed_ms={0}", clock.ElapsedMilliseconds);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Run(int objects, int classes)
    {
        long checksum = 0;
        for (int i = 0; i < objects; i++)
        {
            Shape shape = New(i % classes);
            shape.Tag = i & 0xff;
            Recent[i & 1023] = shape;
            checksum += shape.Tag;
        }
        return checksum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Shape New(int kind)
    {
        switch (kind)
        {
            case 0: return new Dot();
            case 1: return new Line();
            case 2: return new Circle();
            default: return new Box<long>();
        }
    }
}
