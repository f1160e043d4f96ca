// target: 10.0
// framework: aspnet
// option: -debug:embedded
// A web application whose requests wait at known places for known times, until its input ends. It asks itself, once before
// it says "ready": the first requests wait for the start of the service.
//
//     WebWaits [CODE = 0] [both | stock]
//
// Its exit code is CODE. With `both` some requests ask for orders by a request of their own, some for the lines of
// customers, whose number is in the path, some fail, and some are for what is not there. With `stock` there are three
// clients that ask for the stock only, and a request of it holds a lock for 100 ms.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Net.Http;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Hosting.Server.Features;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

static class Shop
{
    /// Its result is written by the framework, whose methods are suspended by the runtime on .NET 11.
    public static async Task<string> Orders()
    {
        await Query();
        return "orders";
    }

    public static async Task Reports(HttpContext context)
    {
        await Query();
        await Collect();
        await context.Response.WriteAsync("reports");
    }

    /// Asks for orders, by a request of its own.
    public static async Task Both(HttpContext context, HttpClient http, string address)
    {
        string orders = await http.GetStringAsync(address + "/orders");
        await context.Response.WriteAsync("both " + orders);
    }

    /// After the exception, which no method of the application catches, the thread goes on with other requests.
    public static async Task<string> Fails()
    {
        await Task.Delay(5);
        throw new InvalidOperationException("as it is asked for");
    }

    static readonly object gate = new object();

    public static string Stock()
    {
        lock (gate) Counts();
        return "stock";
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Counts() => Thread.Sleep(100);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task Query() => await Task.Delay(20);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task Collect() => await Task.Delay(200);
}

static class Program
{
    static async Task<int> Main(string[] args)
    {
        WebApplicationBuilder builder = WebApplication.CreateBuilder();
        builder.Logging.ClearProviders();
        await using WebApplication app = builder.Build();
        app.Urls.Add("http://127.0.0.1:0");
        app.MapGet("/orders", Shop.Orders);
        app.MapGet("/reports", (RequestDelegate)Shop.Reports);
        using HttpClient http = new HttpClient();
        string address = "";
        app.MapGet("/both", (RequestDelegate)(context => Shop.Both(context, http, address)));
        app.MapGet("/fails", Shop.Fails);
        app.MapGet("/stock", Shop.Stock);
        app.MapGet("/lines/{customer}", (string customer) => "lines of " + customer);
        await app.StartAsync();
        address = app.Services.GetRequiredService<IServer>().Features.Get<IServerAddressesFeature>().Addresses.First();
        using CancellationTokenSource end = new CancellationTokenSource();
        string more = args.Length > 1 ? args[1] : "";
        string[] paths = more switch
        {
            "both" => new[] { "/orders", "/reports", "/both" },
            "stock" => new[] { "/stock", "/stock", "/stock" },
            _ => new[] { "/orders", "/reports" },
        };
        await Task.WhenAll(paths.Select(path => http.GetStringAsync(address + path)));
        List<Task> clients = paths.Select(path => Ask(http, address + path, end.Token)).ToList();
        if (more == "both") clients.Add(AskForMore(http, address, end.Token));
        Console.WriteLine("ready");
        if (Environment.GetEnvironmentVariable("WEB_WAITS") is { } value) Console.WriteLine("WEB_WAITS is " + value);
        await Task.Run(Console.In.ReadToEnd);
        end.Cancel();
        await Task.WhenAll(clients);
        await app.StopAsync();
        return args.Length > 0 ? int.Parse(args[0]) : 0;
    }

    static async Task AskForMore(HttpClient http, string address, CancellationToken end)
    {
        for (int customer = 0; !end.IsCancellationRequested; customer++)
        {
            await http.GetStringAsync(address + "/lines/" + customer);
            (await http.GetAsync(address + "/fails")).Dispose();
            (await http.GetAsync(address + "/nowhere" + customer)).Dispose();
        }
    }

    static async Task Ask(HttpClient http, string address, CancellationToken end)
    {
        while (!end.IsCancellationRequested)
        {
            await http.GetStringAsync(address);
        }
    }
}
