// target: 10.0
// Awaits when it is told to, and does nothing else.
//
//     LastWait
//
// Each line of its input is the name of a method that then awaits, `First` or `Last`; when that has ended, it prints `done` and the
// name. It ends with its input.
using System;
using System.Threading.Tasks;

static class LastWait
{
    static int Main()
    {
        Console.WriteLine("ready");
        while (Console.ReadLine() is string name)
        {
            (name == "First" ? First() : Last()).Wait();
            Console.WriteLine("done " + name);
        }
        return 0;
    }

    static async Task First()
    {
        await Task.Delay(50);
    }

    static async Task Last()
    {
        await Task.Delay(50);
    }
}
