// Calls the compiler of C# once for each line of standard input, which has its arguments between tabs. The argument is
// the compiler. What the compiler says is followed by a line with its exit code.
using System;
using System.Reflection;

static class ManyCompilations
{
    static void Main(string[] args)
    {
        var compiler = Assembly.LoadFrom(args[0]).EntryPoint;
        for (string line = Console.ReadLine(); line != null; line = Console.ReadLine())
        {
            var code = compiler.Invoke(null, new object[] { line.Split('\t') });
            Console.WriteLine("exit code " + code);
        }
    }
}
