// target: 8.0
// Keeps objects of classes that the compiler has made: closures, state machines, iterators; says `ready`, and adds more until its
// input ends. Each is kept by a static field, and none is ever completed.
//
//     Captured [fast]
//
// With `fast` it adds none, but makes closures without a pause.
using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

static class Captured
{
    static List<object> Kept { get; } = new List<object>();
    static readonly TaskCompletionSource never = new TaskCompletionSource();

    static int Main(string[] args)
    {
        for (int round = 0; round < 10; round++)
            Add();
        Console.WriteLine("ready");
        ThreadStart work = args.Length > 0 ? Fast : Slow;
        Thread adds = new Thread(work) { IsBackground = true };
        adds.Start();
        Console.In.ReadToEnd();
        return 0;
    }

    static void Slow()
    {
        while (true)
        {
            Add();
            Thread.Sleep(10);
        }
    }

    static void Fast()
    {
        byte[] data = new byte[1000];
        while (true)
            Load(data);
    }

    static void Add()
    {
        lock (Kept)
        {
            Kept.Add(Load(new byte[1000]));
            Kept.Add(Overloaded(1));
            Kept.Add(Overloaded("one"));
            Kept.Add(Scopes(new byte[100]));
            Kept.Add(Wait(new byte[500]));
            Kept.Add(Items(new byte[300]));
            Kept.Add(Stream(new byte[200]));
        }
    }

    static Func<int> Load(byte[] data) => () => data.Length;

    static Func<int> Overloaded(int number) => () => number;

    static Func<int> Overloaded(string text) => () => text.Length;

    // The variables of the method itself are in a class without lambdas.
    static Func<int> Scopes(byte[] outer)
    {
        Func<int> last = null;
        for (int round = 0; round < 2; round++)
        {
            int own = round;
            last = () => own + outer.Length;
        }
        return last;
    }

    static async Task<int> Wait(byte[] data)
    {
        await never.Task;
        return data.Length;
    }

    static IEnumerable<int> Items(byte[] data)
    {
        yield return data.Length;
    }

    static async IAsyncEnumerable<int> Stream(byte[] data)
    {
        await never.Task;
        yield return data.Length;
    }
}
