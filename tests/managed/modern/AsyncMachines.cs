// target: 8.0
// Four async entry methods burn processor time in one helper, below awaits of many kinds, in known shares: 48, 29, 19 and 5 parts of
// 101. All of them are state machines, on each runtime.
//
//     AsyncMachines work|collect|unload [MILLISECONDS]
//
// It says `ready`, works until its input ends, or for this long, and says how many rounds it has made. With `collect` a thread
// collects all the time; with `unload` the work is done by copies of this program in contexts that are unloaded.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.Loader;
using System.Threading;
using System.Threading.Tasks;

public static class Helper
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Burn(int parts) => parts switch
    {
        48 => Witness.Of48(),
        29 => Witness.Of29(),
        19 => Witness.Of19(),
        _ => Witness.Of5(),
    };
}

// The innermost frames, which tell of each sample whose it is. Each is of the same speed from the start: otherwise one may be in
// another tier than the others for as long as it runs.
public static class Witness
{
    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    public static long Of48() => Spin(48);

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    public static long Of29() => Spin(29);

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    public static long Of19() => Spin(19);

    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    public static long Of5() => Spin(5);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static long Spin(int parts)
    {
        long sum = 0;
        for (int i = 0; i < parts * 200_000; i++)
        {
            sum += i ^ (sum >> 3);
        }
        return sum;
    }
}

public static class Machines
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Query(int parts)
    {
        await Task.Delay(1);
        return Helper.Burn(parts);
    }

    // It has resumed once when it resumes the next, and completes at once what awaits it.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<T> Load<T>(int parts, Func<long, T> convert)
    {
        await Task.Yield();
        return convert(await Query(parts));
    }

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async ValueTask<long> LoadValue(int parts) => await Query(parts).ConfigureAwait(false) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async IAsyncEnumerable<long> List(int parts)
    {
        yield return await Query(parts);
        await Task.Yield();
        yield return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task Fail(int parts)
    {
        await Task.Yield();
        Helper.Burn(parts);
        throw new InvalidOperationException();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Orders() => (await Load(48, found => found.ToString())).Length;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async ValueTask<long> Users() => await LoadValue(29) + 2;

    // One of the two.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Reports()
    {
        if (Interlocked.Increment(ref reports) % 2 == 0)
        {
            await Task.WhenAll(Query(19), Task.Delay(2));
            return 3;
        }
        long sum = 0;
        await foreach (long found in List(19))
        {
            sum += found;
        }
        return sum;
    }

    static int reports;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task Stock()
    {
        try
        {
            await Fail(5);
        }
        catch (InvalidOperationException)
        {
        }
    }

    public static async Task<long> Round()
    {
        long sum = await Orders() + await Users() + await Reports();
        await Stock();
        return sum;
    }
}

public static class Program
{
    static volatile bool isOver;

    static async Task<long> Work()
    {
        long rounds = 0;
        while (!isOver)
        {
            await Machines.Round();
            rounds++;
        }
        return rounds;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void WorkInContext()
    {
        var context = new AssemblyLoadContext(null, isCollectible: true);
        Assembly copy = context.LoadFromAssemblyPath(typeof(Program).Assembly.Location);
        MethodInfo round = copy.GetType("Machines").GetMethod("Round");
        for (int i = 0; i < 40; i++)
        {
            ((Task)round.Invoke(null, null)).Wait();
        }
        context.Unload();
    }

    static long WorkInContexts()
    {
        long rounds = 0;
        while (!isOver)
        {
            WorkInContext();
            GC.Collect();
            GC.WaitForPendingFinalizers();
            rounds++;
        }
        return rounds;
    }

    static void Collect()
    {
        while (!isOver)
        {
            GC.Collect(0);
            GC.Collect(2, GCCollectionMode.Forced, blocking: true, compacting: true);
        }
    }

    static async Task<int> Main(string[] arguments)
    {
        Func<Task<long>> work = arguments[0] == "unload" ? () => Task.Run(WorkInContexts) : Work;
        Task<long>[] workers = Enumerable.Range(0, arguments[0] == "unload" ? 2 : 8).Select(_ => Task.Run(work)).ToArray();
        if (arguments[0] == "collect")
        {
            new Thread(Collect).Start();
        }
        Console.WriteLine("ready");
        if (arguments.Length > 1)
        {
            await Task.Delay(int.Parse(arguments[1]));
        }
        else
        {
            await Task.Run(Console.In.ReadToEnd);
        }
        isOver = true;
        long rounds = 0;
        foreach (Task<long> worker in workers)
        {
            rounds += await worker;
        }
        Console.WriteLine($"{rounds} rounds");
        return rounds > 0 ? 0 : 1;
    }
}
