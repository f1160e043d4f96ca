// target: 8.0
// Eight threads make the first call of a method at the same time, ten calls each. Then one thread makes twenty more, so that each of
// the methods is called 100 times. Twelve are of the framework, and compiled in advance; the others are its own.
using System;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Xml;

static class Own<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Parse(string text) => int.Parse(text) + typeof(T).Name.Length;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static string Double(string text) => text + text;
}

static class FirstCalls
{
    const int Threads = 8;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Add(int left, int right) => left + right;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Loop(int count)
    {
        int sum = 0;
        for (int i = 0; i < count; i++)
        {
            sum += i;
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Catch(string text)
    {
        try
        {
            return text.Length;
        }
        catch (NullReferenceException)
        {
            return 0;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static T Same<T>(T value) => value;

    static void Main()
    {
        Action[] calls =
        {
            () => XmlConvert.ToInt16("1"),
            () => XmlConvert.ToInt32("1"),
            () => XmlConvert.ToInt64("1"),
            () => XmlConvert.ToUInt16("1"),
            () => XmlConvert.ToUInt32("1"),
            () => XmlConvert.ToUInt64("1"),
            () => XmlConvert.ToByte("1"),
            () => XmlConvert.ToSByte("1"),
            () => XmlConvert.ToBoolean("1"),
            () => XmlConvert.ToChar("1"),
            () => XmlConvert.ToDecimal("1"),
            () => XmlConvert.ToTimeSpan("PT1S"),
            () => Own<int>.Parse("1"),
            () => Own<string>.Parse("1"),
            () => Own<int>.Double("1"),
            () => Own<string>.Double("1"),
            () => Add(1, 2),
            () => Loop(3),
            () => Catch("text"),
            () => Same(1),
            () => Same("text"),
        };
        foreach (Action call in calls)
        {
            MakeAtOnce(call);
        }
        Console.WriteLine("called");
    }

    static void MakeAtOnce(Action call)
    {
        var all = new Barrier(Threads);
        Thread[] threads = Enumerable.Range(0, Threads).Select(_ => new Thread(() =>
        {
            all.SignalAndWait();
            Repeat(call, 10);
        })).ToArray();
        foreach (Thread thread in threads)
        {
            thread.Start();
        }
        foreach (Thread thread in threads)
        {
            thread.Join();
        }
        Repeat(call, 20);
    }

    static void Repeat(Action call, int times)
    {
        for (int i = 0; i < times; i++)
        {
            call();
        }
    }
}
