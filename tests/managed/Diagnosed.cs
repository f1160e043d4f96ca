// Does what it is told on its standard input, a command a line, and answers each with a line: for tools that look at it from
// outside.
//
//     Diagnosed
//
// collect N: collects N times, one after the other. throw N: throws and catches N exceptions. end, or the end of the input:
// ends.
using System;

static class Diagnosed
{
    static int Main()
    {
        Answer("ready");
        for (string line = Console.ReadLine(); line != null && line != "end"; line = Console.ReadLine())
        {
            string[] words = line.Split(' ');
            int count = words.Length > 1 ? int.Parse(words[1]) : 1;
            for (int i = 0; i < count; i++)
            {
                if (words[0] == "collect") GC.Collect(2, GCCollectionMode.Forced, true);
                else Throw();
            }
            Answer("done " + line);
        }
        return 0;
    }

    static void Answer(string line)
    {
        Console.WriteLine(line);
        Console.Out.Flush();
    }

    static void Throw()
    {
        try { throw new InvalidOperationException("asked for"); }
        catch (InvalidOperationException) { }
    }
}
