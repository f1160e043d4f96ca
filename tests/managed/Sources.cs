// An event source of the application's: writes four events, three of them in an activity, and is gone before the end.
//
//     Sources
//
// A profiler learns by the names of the thread when it may begin and end.
using System;
using System.Diagnostics.Tracing;
using System.Threading;

[EventSource(Name = "Corprof-Sources")]
class Source : EventSource
{
    [Event(1)]
    public void Plain(int number) { WriteEvent(1, number); }

    [Event(2)]
    public void InActivity(int number) { WriteEvent(2, number); }

    [Event(3)]
    public void Sold(int number, string customerName, double price, bool isPaid, ulong big, Guid guid, char letter, Kind kind)
    {
        WriteEvent(3, number, customerName, price, isPaid, big, guid, letter, kind);
    }

    [Event(4)]
    public void Paid(int number, DateTime at) { WriteEvent(4, number, at); }
}

enum Kind { None, Some = 5 }

static class Sources
{
    static int Main()
    {
        Thread.CurrentThread.Name = "start";
        using (Source source = new Source())
        {
            source.Plain(7);
            EventSource.SetCurrentThreadActivityId(new Guid("00010203-0405-0607-0809-0a0b0c0d0e0f"));
            source.InActivity(8);
            source.Sold(-9, "Zoë", 9.5, true, ulong.MaxValue, new Guid("00010203-0405-0607-0809-0a0b0c0d0e0f"), 'ß', Kind.Some);
            source.Paid(5, new DateTime(2009, 2, 13, 23, 31, 30, 123, DateTimeKind.Utc));
        }
        Thread.CurrentThread.Name = "stop";
        Console.WriteLine("done");
        return 0;
    }
}
