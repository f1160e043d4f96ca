// target: 10.0
// option: -debug:embedded
// framework: aspnet
// The web service that `cargo xtask bench` measures profilers on. It prints `listening PORT`, and ends after GET /end. For
// `cargo xtask demo sampler` it requests its own pages, by eight clients, for so many milliseconds, and prints how many.
//
//     Service [MILLISECONDS]
//
//     GET /catalogue   a report over 400 products: LINQ, dictionaries, sorting, text and JSON
//     GET /shares      work in known shares of processor time: Sixty 60 %, Thirty 30 %, Ten 10 %
//     GET /mix         the same in an async method (40 %), in a generic method (20 %) and in a lambda over an iterator (40 %)
//     GET /orders      the report, after an order that is counted under a lock and, in each 32nd request, refused by an exception
//     GET /hello       next to nothing
//     GET /awaits      the same, suspended twice

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Net;
using System.Net.Http;
using System.Runtime.CompilerServices;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;

static class Service
{
    static int Main(string[] args)
    {
        WebApplicationBuilder builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.ConfigureKestrel(options => options.Listen(IPAddress.Loopback, 0));
        WebApplication app = builder.Build();
        Catalogue catalogue = new Catalogue(400);
        app.Map("/catalogue", branch => branch.Run(context => Answer(context, catalogue.Report())));
        Orders orders = new Orders();
        app.Map("/orders", branch => branch.Run(context => Answer(context, orders.Take() + catalogue.Report())));
        app.Map("/shares", branch => branch.Run(context => Answer(context, Truth.Shares().ToString())));
        app.Map("/mix", branch => branch.Run(async context => await Answer(context, (await Truth.Mix()).ToString())));
        app.Map("/hello", branch => branch.Run(context => Answer(context, "hello")));
        app.Map("/awaits", branch => branch.Run(Awaits));
        app.Map("/end", branch => branch.Run(context =>
        {
            app.Lifetime.StopApplication();
            return Answer(context, "ends");
        }));
        app.Start();
        Console.WriteLine("listening {0}", new Uri(app.Urls.First()).Port);
        if (args.Length > 0)
        {
            Console.WriteLine("answered {0}", Clients.Ask(app.Urls.First(), TimeSpan.FromMilliseconds(int.Parse(args[0]))).Result);
            app.Lifetime.StopApplication();
        }
        app.WaitForShutdown();
        return 0;
    }

    static async Task Awaits(HttpContext context)
    {
        await Task.Yield();
        await Task.Yield();
        await Answer(context, "awaits");
    }

    /// Tells the length first, so that clients need not understand chunks.
    static Task Answer(HttpContext context, string text)
    {
        byte[] bytes = Encoding.UTF8.GetBytes(text);
        context.Response.ContentLength = bytes.Length;
        return context.Response.Body.WriteAsync(bytes, 0, bytes.Length);
    }
}

static class Clients
{
    static readonly string[] Pages = { "/catalogue", "/catalogue", "/shares", "/mix", "/hello" };

    public static async Task<int> Ask(string address, TimeSpan time)
    {
        using HttpClient client = new() { BaseAddress = new Uri(address) };
        Stopwatch watch = Stopwatch.StartNew();
        int answers = 0;
        async Task Client(int number)
        {
            for (int turn = number; watch.Elapsed < time; turn++)
            {
                await client.GetStringAsync(Pages[turn % Pages.Length]);
                Interlocked.Increment(ref answers);
            }
        }
        await Task.WhenAll(Enumerable.Range(0, 8).Select(number => Task.Run(() => Client(number))));
        return answers;
    }
}

sealed record Product(int Number, string Name, string Group, decimal Price, int[] Sold);

sealed class Catalogue
{
    static readonly string[] Groups = { "books", "tools", "toys", "food", "music", "garden" };
    readonly List<Product> products = new();

    public Catalogue(int count)
    {
        Random random = new(42);
        for (int i = 0; i < count; i++)
        {
            int[] sold = Enumerable.Range(0, 24).Select(_ => random.Next(1, 500)).ToArray();
            products.Add(new Product(i, "Product " + random.Next(1000, 9999), Groups[i % Groups.Length], random.Next(1, 9999) / 100m, sold));
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public string Report()
    {
        Dictionary<string, decimal> totals = Totals();
        List<Product> best = Best(50);
        string json = JsonSerializer.Serialize(best);
        return Render(totals, best) + json.Length + Search("7").Count + Checksum(json);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    Dictionary<string, decimal> Totals() => products.GroupBy(product => product.Group)
        .ToDictionary(group => group.Key, group => group.Sum(product => product.Price * product.Sold.Sum()));

    [MethodImpl(MethodImplOptions.NoInlining)]
    List<Product> Best(int count) => products.OrderByDescending(product => product.Price * product.Sold.Max())
        .ThenBy(product => product.Name, StringComparer.Ordinal).Take(count).ToList();

    [MethodImpl(MethodImplOptions.NoInlining)]
    List<Product> Search(string text) => products.Where(product => product.Name.Contains(text, StringComparison.Ordinal)).ToList();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Render(Dictionary<string, decimal> totals, List<Product> best)
    {
        StringBuilder text = new();
        foreach ((string group, decimal total) in totals.OrderBy(pair => pair.Key, StringComparer.Ordinal))
            text.Append(group).Append(": ").Append(total.ToString("F2")).Append('\n');
        foreach (Product product in best) text.Append($"{product.Number,5} {product.Name,-20} {product.Price,10:F2}\n");
        return text.ToString();
    }

    /// A loop of its own over the text again and again, as parsers and serializers have.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static uint Checksum(string text)
    {
        uint hash = 2166136261;
        for (int turn = 0; turn < 20; turn++)
            foreach (char one in text) hash = (hash ^ one) * 16777619;
        return hash;
    }
}

sealed class Orders
{
    readonly object gate = new();
    readonly int[] sums = new int[4096];
    int taken;

    /// Some microseconds under the lock: now and then another request waits for it.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public string Take()
    {
        int number;
        lock (gate)
        {
            number = ++taken;
            for (int i = 0; i < sums.Length; i++) sums[i] += number;
        }
        try
        {
            return Check(number);
        }
        catch (InvalidOperationException refused)
        {
            return refused.Message;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Check(int number) => number % 32 == 0 ? throw new InvalidOperationException("refused") : "taken";
}

static class Truth
{
    /// Half a millisecond or so.
    const int Turns = 500_000;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Shares()
    {
        // In random order, so that no sampling in step with it sees one piece only.
        int sixty = 6, thirty = 3, ten = 1;
        long result = 0;
        for (int left = 10; left > 0; left--)
        {
            int drawn = Random.Shared.Next(left);
            if (drawn < sixty) { result += Sixty(); sixty--; }
            else if (drawn < sixty + thirty) { result += Thirty(); thirty--; }
            else { result += Ten(); ten--; }
        }
        return result;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Sixty() => Burn(Turns) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Thirty() => Burn(Turns) + 2;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Ten() => Burn(Turns) + 3;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<long> Mix()
    {
        long result = await Later();
        result += Generic<string>(2);
        // Inlined, the lambda would have no frame, and its work would count as its caller's.
        var values = Pieces(4).Select([MethodImpl(MethodImplOptions.NoInlining)] (turns) => Burn((int)turns));
        foreach (long value in values) result += value;
        return result;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<long> Later()
    {
        long result = 0;
        for (int i = 0; i < 4; i++)
        {
            await Task.Yield();
            result += Burn(Turns);
        }
        return result;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Generic<T>(int pieces)
    {
        long result = typeof(T).Name.Length;
        for (int i = 0; i < pieces; i++) result += Burn(Turns);
        return result;
    }

    static IEnumerable<long> Pieces(int count)
    {
        for (int i = 0; i < count; i++) yield return Turns;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Burn(int turns)
    {
        long value = turns;
        for (int i = 0; i < turns; i++) value = value * 6364136223846793005 + 1442695040888963407;
        return value;
    }
}
