// Prints one line. Without arguments it exits with 0; with some it greets them and exits with 42.
//
//     Hello [NAME…]
using System;

static class Hello
{
    static int Main(string[] args)
    {
        Console.WriteLine("Hello, " + (args.Length == 0 ? "world" : string.Join(" and ", args)) + "!");
        return args.Length == 0 ? 0 : 42;
    }
}
