// target: 10.0
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// Four async entry methods burn processor time in one helper, below awaits, in known shares: 48, 29, 19 and 5 parts of 101. The
// methods of Shop are suspended by the runtime itself, those of Machines are state machines, and those of Mixed are both, as in an
// ASP.NET Core application. On .NET 10 it needs DOTNET_RuntimeAsync=1.
//
//     AsyncShares shop|machines|mixed [MILLISECONDS]
//
// It says `ready`, works until its input ends, or for this long, and says how many rounds it has made in how much processor time.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace System.Runtime.CompilerServices
{
    // The compiler knows it by its name.
    [AttributeUsage(AttributeTargets.Method)]
    sealed class RuntimeAsyncMethodGenerationAttribute : Attribute
    {
        public RuntimeAsyncMethodGenerationAttribute(bool isOn) => _ = isOn;
    }
}

static class Helper
{
    public static volatile bool IsOver;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Burn(int parts) => parts switch
    {
        48 => Witness.Of48(),
        29 => Witness.Of29(),
        19 => Witness.Of19(),
        0 => 0,
        _ => Witness.Of5(),
    };
}

// The innermost frames, which tell of each sample whose it is.
static class Witness
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Of48() => Spin(48);

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Of29() => Spin(29);

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Of19() => Spin(19);

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Of5() => Spin(5);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static long Spin(int parts)
    {
        long sum = 0;
        for (int i = 0; i < parts * 20_000; i++)
        {
            sum += i ^ (sum >> 3);
        }
        return sum;
    }
}

static class Shop
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Query(int parts)
    {
        await Task.Delay(1);
        return Helper.Burn(parts);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Load(int parts) => await Query(parts) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Orders() => await Load(48) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Users() => await Load(29) + 2;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Reports() => await Load(19) + 3;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Stock() => await Load(5) + 4;

    public static async Task<long> Work()
    {
        long rounds = 0;
        while (!Helper.IsOver)
        {
            await Orders();
            await Users();
            await Reports();
            await Stock();
            rounds++;
        }
        return rounds;
    }
}

static class Machines
{
    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Query(int parts)
    {
        await Task.Delay(1);
        return Helper.Burn(parts);
    }

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Load(int parts) => await Query(parts) + 1;

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Orders() => await Load(48) + 1;

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Users() => await Load(29) + 2;

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Reports() => await Load(19) + 3;

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Stock() => await Load(5) + 4;

    [RuntimeAsyncMethodGeneration(false)]
    public static async Task<long> Work()
    {
        long rounds = 0;
        while (!Helper.IsOver)
        {
            await Orders();
            await Users();
            await Reports();
            await Stock();
            rounds++;
        }
        return rounds;
    }
}

static class Mixed
{
    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Query(int parts)
    {
        await Task.Delay(1);
        return Helper.Burn(parts);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Load(int parts) => await Query(parts) + 1;

    [RuntimeAsyncMethodGeneration(false)]
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
        await Query(parts);
        throw new InvalidOperationException();
    }

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Orders() => await Load(48) + 1;

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Users()
    {
        await Task.WhenAll(Query(29), Query(0));
        return 2;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Reports()
    {
        long sum = 0;
        await foreach (long found in List(19))
        {
            sum += found;
        }
        return sum;
    }

    [RuntimeAsyncMethodGeneration(false)]
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

    public static async Task<long> Work()
    {
        long rounds = 0;
        while (!Helper.IsOver)
        {
            await Orders();
            await Users();
            await Reports();
            await Stock();
            rounds++;
        }
        return rounds;
    }
}

static class Program
{
    static async Task<int> Main(string[] arguments)
    {
        Func<Task<long>> work = arguments[0] switch
        {
            "machines" => Machines.Work,
            "mixed" => Mixed.Work,
            _ => Shop.Work,
        };
        Task<long>[] workers = Enumerable.Range(0, 8).Select(_ => Task.Run(work)).ToArray();
        Console.WriteLine("ready");
        if (arguments.Length > 1)
        {
            await Task.Delay(int.Parse(arguments[1]));
        }
        else
        {
            await Task.Run(Console.In.ReadToEnd);
        }
        Helper.IsOver = true;
        long rounds = 0;
        foreach (Task<long> worker in workers)
        {
            rounds += await worker;
        }
        double milliseconds = Process.GetCurrentProcess().TotalProcessorTime.TotalMilliseconds;
        Console.WriteLine($"{rounds} rounds, {milliseconds:F0} ms");
        return 0;
    }
}
