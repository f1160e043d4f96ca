// target: 10.0
// framework: aspnet
// A web application whose requests have a hot loop, which the runtime replaces while it runs (on-stack replacement). It asks
// itself, from three clients at once.
//
//     WebLoops MILLISECONDS
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

static class Loops
{
    const int Clients = 3;

    static async Task<int> Main(string[] args)
    {
        WebApplicationBuilder builder = WebApplication.CreateBuilder();
        builder.Logging.ClearProviders();
        await using WebApplication app = builder.Build();
        app.Urls.Add("http://127.0.0.1:0");
        app.MapGet("/sum", (RequestDelegate)Answer);
        await app.StartAsync();
        IServerAddressesFeature addresses = app.Services.GetRequiredService<IServer>().Features.Get<IServerAddressesFeature>();
        string address = addresses.Addresses.First() + "/sum";
        TimeSpan time = TimeSpan.FromMilliseconds(int.Parse(args[0]));
        using HttpClient http = new HttpClient();
        int[] wrong = await Task.WhenAll(Enumerable.Range(0, Clients).Select(_ => Ask(http, address, time)));
        await app.StopAsync();
        Console.WriteLine("wrong: {0}", wrong.Sum());
        return 0;
    }

    static async Task<int> Ask(HttpClient http, string address, TimeSpan time)
    {
        int wrong = 0;
        for (Stopwatch watch = Stopwatch.StartNew(); watch.Elapsed < time;)
            if (await http.GetStringAsync(address) != "sum") wrong++;
        return wrong;
    }

    static async Task Answer(HttpContext context)
    {
        await Task.Yield();
        long sum = CallsRequest();
        await context.Response.WriteAsync(sum == 0 ? "none" : "sum");
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static long CallsRequest() { return HotRequest(3) | 1; }
    [MethodImpl(MethodImplOptions.NoInlining)] static long HotRequest(int milliseconds)
    {
        long value = 1;
        for (Stopwatch watch = Stopwatch.StartNew(); watch.ElapsedMilliseconds < milliseconds;)
            for (int i = 0; i < 1000; i++) value = value * 31 + i;
        return value;
    }
}
