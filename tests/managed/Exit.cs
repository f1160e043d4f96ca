// Prints lines to standard output, one to standard error, and exits with the code it is told. A negative code means: end
// by an unhandled exception.
//
//     Exit CODE [LINES = 3]
using System;

static class Exit
{
    static int Main(string[] args)
    {
        int code = int.Parse(args[0]), lines = args.Length > 1 ? int.Parse(args[1]) : 3;
        for (int line = 1; line <= lines; line++) Console.WriteLine("line " + line + " of " + lines);
        Console.Error.WriteLine("exiting with " + code);
        if (code < 0) throw new InvalidOperationException("nobody catches this");
        return code;
    }
}
