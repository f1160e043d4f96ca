// Starts several programs at once, as a build server or a web server with workers does: children with the environment of its own.
//
//     Family COUNT HOST [ARGUMENT ...]
//
// HOST is started COUNT times with the arguments. Prints a line for each child with its exit code, and exits with 0 if all
// exited with 42.
using System;
using System.Collections.Generic;
using System.Diagnostics;

static class Family
{
    static int Main(string[] args)
    {
        List<Process> children = new List<Process>();
        for (int child = 0; child < int.Parse(args[0]); child++)
        {
            ProcessStartInfo start = new ProcessStartInfo(args[1]) { UseShellExecute = false };
            for (int i = 2; i < args.Length; i++) start.Arguments += (i > 2 ? " " : "") + "\"" + args[i] + "\"";
            children.Add(Process.Start(start));
        }
        bool all = true;
        foreach (Process child in children)
        {
            child.WaitForExit();
            Console.WriteLine("child exited with " + child.ExitCode);
            all &= child.ExitCode == 42;
        }
        return all ? 0 : 1;
    }
}
