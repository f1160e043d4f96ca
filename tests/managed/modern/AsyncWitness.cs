// target: 11.0
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// Two async entry methods have one helper, below awaits, allocate, throw or wait for a lock. What it does tells for whom: it allocates
// arrays of OfOrders or OfUsers, throws exceptions of these names, or waits in methods of these names. The runtime suspends the
// methods itself.
//
//     AsyncWitness allocate|throw|lock|rest [MILLISECONDS]
//
// With `rest` it throws, and three of four workers rest for two seconds in the helper of each call for users.
// It says `ready`, and works until its input ends, or for this long.
using System;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

sealed class OfOrders
{
}

sealed class OfUsers
{
}

sealed class OrdersException : ApplicationException
{
}

sealed class UsersException : ApplicationException
{
}

static class Helper
{
    public static volatile bool IsOver;
    public static string What = "";
    public static readonly AsyncLocal<bool> Rests = new();
    static object kept = "";
    static readonly object orders = new();
    static readonly object users = new();

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Do(bool isOrders) => What switch
    {
        "allocate" => Allocate(isOrders),
        "throw" or "rest" => Throw(isOrders),
        _ => isOrders ? WaitOfOrders() : WaitOfUsers(),
    };

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Allocate(bool isOrders)
    {
        for (int i = 0; i < 20; i++)
        {
            kept = isOrders ? new OfOrders[1000] : new OfUsers[1000];
        }
        return kept.GetHashCode();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Throw(bool isOrders) => throw (isOrders ? new OrdersException() : new UsersException());

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Rest(bool isOrders)
    {
        if (Rests.Value && !isOrders)
        {
            Thread.Sleep(2000);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long WaitOfOrders()
    {
        lock (orders)
        {
            Thread.Sleep(5);
            return 1;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long WaitOfUsers()
    {
        lock (users)
        {
            Thread.Sleep(5);
            return 1;
        }
    }
}

static class Shop
{
    static int calls;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Query(bool isOrders)
    {
        // Half of the calls for users need not wait: what was resumed before has called them.
        if (isOrders || Interlocked.Increment(ref calls) % 2 == 0)
        {
            await Task.Delay(1);
        }
        try
        {
            return Helper.Do(isOrders);
        }
        catch (ApplicationException)
        {
            Helper.Rest(isOrders);
            return 0;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Load(bool isOrders) => await Query(isOrders) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Orders() => await Load(true) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Users() => await Load(false) + 2;

    public static async Task<long> Work(bool rests)
    {
        Helper.Rests.Value = rests;
        long sum = 0;
        while (!Helper.IsOver)
        {
            sum += await Orders();
            sum += await Users();
        }
        return sum;
    }
}

static class Program
{
    static Task<long> Start(int number)
    {
        bool rests = Helper.What == "rest" && number > 0;
        return Task.Run(() => Shop.Work(rests));
    }

    static async Task<int> Main(string[] arguments)
    {
        Helper.What = arguments[0];
        ThreadPool.SetMinThreads(8, 1);
        Task<long>[] workers = Enumerable.Range(0, 4).Select(Start).ToArray();
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
        await Task.WhenAll(workers);
        return 0;
    }
}
