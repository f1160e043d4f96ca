// target: 10.0
// framework: aspnet
// A web application that asks itself for a time: each endpoint has a method of its own that computes, before or after the
// first await of the request, and one endpoint is slow now and then.
//
//     WebLabels MILLISECONDS
using System;
using System.Diagnostics;
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
    static int rare;

    public static async Task Early(HttpContext context)
    {
        Before(4);
        await Task.Delay(1);
        await context.Response.WriteAsync("early");
    }

    public static async Task Late(HttpContext context)
    {
        await Task.Delay(1);
        After(4);
        await context.Response.WriteAsync("late");
    }

    // One of 50 is slow: it waits for longer than others do for a processor.
    public static async Task Rare(HttpContext context)
    {
        bool isSlow = Interlocked.Increment(ref rare) % 50 == 0;
        await Task.Delay(isSlow ? 300 : 1);
        if (isSlow) Slow(100); else Quick(1);
        await context.Response.WriteAsync("rare");
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static long Before(int milliseconds) { return Burn(milliseconds) | 1; }
    [MethodImpl(MethodImplOptions.NoInlining)] static long After(int milliseconds) { return Burn(milliseconds) | 2; }
    [MethodImpl(MethodImplOptions.NoInlining)] static long Slow(int milliseconds) { return Burn(milliseconds) | 4; }
    [MethodImpl(MethodImplOptions.NoInlining)] static long Quick(int milliseconds) { return Burn(milliseconds) | 8; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Burn(int milliseconds)
    {
        long value = 1;
        for (Stopwatch watch = Stopwatch.StartNew(); watch.ElapsedMilliseconds < milliseconds;)
            for (int i = 0; i < 1000; i++) value = value * 31 + i;
        return value;
    }
}

static class Program
{
    static async Task<int> Main(string[] args)
    {
        WebApplicationBuilder builder = WebApplication.CreateBuilder();
        builder.Logging.ClearProviders();
        await using WebApplication app = builder.Build();
        app.Urls.Add("http://127.0.0.1:0");
        app.MapGet("/early", (RequestDelegate)Shop.Early);
        app.MapGet("/late", (RequestDelegate)Shop.Late);
        app.MapGet("/rare", (RequestDelegate)Shop.Rare);
        await app.StartAsync();
        string address = app.Services.GetRequiredService<IServer>().Features.Get<IServerAddressesFeature>().Addresses.First();
        TimeSpan time = TimeSpan.FromMilliseconds(int.Parse(args[0]));
        using HttpClient http = new HttpClient();
        string[] paths = { "/early", "/late", "/rare" };
        int[] requests = await Task.WhenAll(paths.Select(path => Ask(http, address + path, time)));
        await app.StopAsync();
        Console.WriteLine("requests: {0}", requests.Sum());
        return 0;
    }

    static async Task<int> Ask(HttpClient http, string address, TimeSpan time)
    {
        int requests = 0;
        for (Stopwatch watch = Stopwatch.StartNew(); watch.Elapsed < time; requests++) await http.GetStringAsync(address);
        return requests;
    }
}
