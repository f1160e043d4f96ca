// target: 10.0
// framework: aspnet
// A web application with four endpoints that burn processor time in one helper, below awaits, in known shares: 48, 29, 19 and 5 parts
// of 101. It asks itself, from eight clients, until its input ends, or for this long.
//
//     WebShares [MILLISECONDS]
//
// It says `ready` once each endpoint has answered, and at the end how many rounds it has made.
using System;
using System.Linq;
using System.Net.Http;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Hosting.Server.Features;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

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

// The innermost frames, which tell of each sample whose it is. Each is of the same speed from the start.
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
        for (int i = 0; i < parts * 50_000; i++)
        {
            sum += i ^ (sum >> 3);
        }
        return sum;
    }
}

public static class Shop
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Query(int parts)
    {
        await Task.Delay(1);
        return Helper.Burn(parts);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<string> Load(int parts)
    {
        await Task.Yield();
        return (await Query(parts)).ToString();
    }

    public static async Task<string> Orders() => "orders " + await Load(48);

    // It starts before it waits, and what it waits for ends later.
    public static async Task<string> Users()
    {
        Task<string> users = Load(29);
        await Task.WhenAll(users, Task.Delay(20));
        return "users " + await users;
    }

    public static async Task<string> Reports() => "reports " + await Load(19);

    public static async Task<string> Stock() => "stock " + await Load(5);
}

static class Program
{
    const int Clients = 8;
    static volatile bool isOver;

    static async Task<int> Main(string[] args)
    {
        WebApplicationBuilder builder = WebApplication.CreateBuilder();
        builder.Logging.ClearProviders();
        await using WebApplication app = builder.Build();
        app.Urls.Add("http://127.0.0.1:0");
        app.MapGet("/orders", Shop.Orders);
        app.MapGet("/users", Shop.Users);
        app.MapGet("/reports", Shop.Reports);
        app.MapGet("/stock", Shop.Stock);
        await app.StartAsync();
        string address = app.Services.GetRequiredService<IServer>().Features.Get<IServerAddressesFeature>().Addresses.First();
        using HttpClient http = new HttpClient();
        await Round(http, address);
        Task<long>[] clients = Enumerable.Range(0, Clients).Select(_ => Ask(http, address)).ToArray();
        Console.WriteLine("ready");
        await (args.Length > 0 ? Task.Delay(int.Parse(args[0])) : Task.Run(Console.In.ReadToEnd));
        isOver = true;
        long rounds = (await Task.WhenAll(clients)).Sum();
        await app.StopAsync();
        Console.WriteLine($"{rounds} rounds");
        return rounds > 0 ? 0 : 1;
    }

    static async Task<long> Ask(HttpClient http, string address)
    {
        long rounds = 0;
        while (!isOver)
        {
            await Round(http, address);
            rounds++;
        }
        return rounds;
    }

    static async Task Round(HttpClient http, string address)
    {
        foreach (string path in new[] { "/orders", "/users", "/reports", "/stock" })
        {
            await http.GetStringAsync(address + path);
        }
    }
}
