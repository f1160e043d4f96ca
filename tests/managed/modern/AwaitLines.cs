// target: 11.0
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// option: -debug:embedded
// Awaits at lines of their own, each in a method with other awaits before and behind, again and again until its input
// ends.
//
//     AwaitLines
//
// An operation waits at each line that ends in `// CLASS.METHOD`: in the class `Machine` of a state machine, in
// `Suspended` of a method that the runtime itself suspends. At the ends of the blocks of `Uses` it waits at an await
// that the compiler has made, for which the source has no line.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;

namespace System.Runtime.CompilerServices
{
    /// The compiler knows it by its name.
    [AttributeUsage(AttributeTargets.Method)]
    class RuntimeAsyncMethodGenerationAttribute : Attribute
    {
        public RuntimeAsyncMethodGenerationAttribute(bool isOn) { }
    }
}

class Late : IAsyncDisposable
{
    public ValueTask DisposeAsync() => new(Task.Delay(20));
}

class Machine
{
    static int sum;

    [RuntimeAsyncMethodGeneration(false)]
    public static async Task Twice()
    {
        sum++;
        await Task.Delay(20); // Machine.Twice
        sum++;
        await Task.Delay(20); // Machine.Twice
        sum++;
    }

    [RuntimeAsyncMethodGeneration(false)]
    public static async Task Branches(int number)
    {
        switch (number)
        {
            case 1:
                await Task.Delay(20).ConfigureAwait(false); // Machine.Branches
                break;
            default:
                for (int i = 0; i < 2; i++)
                {
                    sum++;
                    await Task.Delay( // Machine.Branches
                        20);
                }
                break;
        }
        await Task.CompletedTask;
    }

    [RuntimeAsyncMethodGeneration(false)]
    public static async Task<T> Catches<T>(T value)
    {
        try
        {
            await Task.Delay(20); // Machine.Catches
            throw new InvalidOperationException();
        }
        catch (InvalidOperationException)
        {
            await Task.Delay(20); // Machine.Catches
        }
        finally
        {
            await Task.Delay(20); // Machine.Catches
        }
        return value;
    }

    [RuntimeAsyncMethodGeneration(false)]
    public static async Task Uses()
    {
        await using (new Late())
        {
            sum++;
            await Task.Delay(20); // Machine.Uses
            sum++;
        }
        sum++;
    }

    [RuntimeAsyncMethodGeneration(false)]
    public static async IAsyncEnumerable<int> Numbers()
    {
        yield return 1;
        await Task.Delay(20); // Machine.Numbers
        yield return 2;
    }

    [RuntimeAsyncMethodGeneration(false)]
    public static async Task Sums()
    {
        await foreach (int number in Numbers()) sum += number; // Machine.Sums
    }
}

class Suspended
{
    static int sum;

    public static async Task Twice()
    {
        sum++;
        await Task.Delay(20); // Suspended.Twice
        sum++;
        await Task.Delay(20); // Suspended.Twice
        sum++;
    }

    public static async Task Branches(int number)
    {
        switch (number)
        {
            case 1:
                await Task.Delay(20).ConfigureAwait(false); // Suspended.Branches
                break;
            default:
                for (int i = 0; i < 2; i++)
                {
                    sum++;
                    await Task.Delay( // Suspended.Branches
                        20);
                }
                break;
        }
        await Task.CompletedTask;
    }

    public static async Task<T> Catches<T>(T value)
    {
        try
        {
            await Task.Delay(20); // Suspended.Catches
            throw new InvalidOperationException();
        }
        catch (InvalidOperationException)
        {
            await Task.Delay(20); // Suspended.Catches
        }
        finally
        {
            await Task.Delay(20); // Suspended.Catches
        }
        return value;
    }

    public static async Task Uses()
    {
        await using (new Late())
        {
            sum++;
            await Task.Delay(20); // Suspended.Uses
            sum++;
        }
        sum++;
    }
}

static class AwaitLines
{
    static volatile bool isOver;

    static async Task<int> Main()
    {
        Task[] all = new Func<Task>[]
        {
            Machine.Twice, () => Machine.Branches(1), () => Machine.Branches(2), () => Machine.Catches("text"),
            Machine.Uses, Machine.Sums,
            Suspended.Twice, () => Suspended.Branches(1), () => Suspended.Branches(2), () => Suspended.Catches("text"),
            Suspended.Uses,
        }.Select(Repeats).ToArray();
        Console.WriteLine("ready");
        await Task.Run(Console.In.ReadToEnd);
        isOver = true;
        await Task.WhenAll(all);
        return 0;
    }

    static async Task Repeats(Func<Task> start)
    {
        while (!isOver) await start();
    }
}
