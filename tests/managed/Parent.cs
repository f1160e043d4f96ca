// Starts another program as `dotnet run` and `dotnet test` do: as a child process with the environment of its own.
//
//     Parent CHANGES HOST [ARGUMENT ...]
//
// HOST is started with the arguments, and its output and exit code are this program's. CHANGES are changes to its environment,
// NAME=VALUE or NAME= for none, with semicolons between; or - for no change.
using System;
using System.Diagnostics;

static class Parent
{
    static int Main(string[] args)
    {
        ProcessStartInfo start = new ProcessStartInfo(args[1]) { UseShellExecute = false };
        for (int i = 2; i < args.Length; i++) start.Arguments += (i > 2 ? " " : "") + "\"" + args[i] + "\"";
        foreach (string change in args[0].Split(';'))
        {
            int equals = change.IndexOf('=');
            if (equals < 0) continue;
            string name = change.Substring(0, equals), value = change.Substring(equals + 1);
            if (value == "") start.EnvironmentVariables.Remove(name);
            else start.EnvironmentVariables[name] = value;
        }
        using (Process child = Process.Start(start))
        {
            child.WaitForExit();
            return child.ExitCode;
        }
    }
}
