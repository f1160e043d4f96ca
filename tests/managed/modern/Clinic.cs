// target: 10.0
// framework: aspnet
// option: -debug:embedded
// A service with something to find for each question: one path hashes, one throws and catches, one sleeps with a lock,
// one waits for a task, one keeps what it allocates, one awaits; and two threads of it have a deadlock.
//
//     Clinic             prints `ready ADDRESS`, and serves until its input ends
//     Clinic ask ADDRESS asks the service, until its input ends
//
// At each line `crowd`, 200 more clients ask ten times each for the archive, for which a thread sleeps: the pool has too
// few threads for that.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Net.Http;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
#if LISTENER
using System.Net;
using System.Net.Sockets;
using System.Text;
#else
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Hosting.Server.Features;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
#endif

namespace Clinic
{
    class NoSuchPatientException : Exception
    {
        public NoSuchPatientException(string name) : base("no patient " + name) { }
    }

    static class Checks
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static string Hash()
        {
            uint hash = 2166136261;
            for (uint i = 0; i < 2_000_000; i++) hash = (hash ^ i) * 16777619;
            return hash.ToString();
        }
    }

    static class Patients
    {
        static readonly Dictionary<int, byte[]> files = new();

        public static string Find()
        {
            try { return Named("Ada"); }
            catch (NoSuchPatientException exception) { return exception.Message; }
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static string Named(string name) => throw new NoSuchPatientException(name);

        public static string Keep()
        {
            byte[] file = new byte[10_000];
            for (int copy = 0; copy < 30; copy++) file = (byte[])file.Clone();
            lock (files) files[files.Count] = file;
            return "kept";
        }
    }

    static class Prices
    {
        static readonly object gate = new();

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static string Of()
        {
            lock (gate) Thread.Sleep(20);
            return "20";
        }
    }

    static class Beds
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static string Blocking() => Counted().Result;

        static async Task<string> Counted()
        {
            await Task.Delay(50);
            return "7";
        }

        public static async Task<string> Free()
        {
            await Task.Delay(20);
            return "3";
        }
    }

    static class Archive
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static string Read()
        {
            Thread.Sleep(1000);
            return "read";
        }
    }

    static class Wards
    {
        static readonly object north = new(), south = new();
        static readonly Barrier both = new(2);

        public static void Deadlock()
        {
            Start("left", north, south);
            Start("right", south, north);
        }

        static void Start(string name, object first, object second)
        {
            new Thread(() => Lock(first, second)) { Name = name, IsBackground = true }.Start();
        }

        static void Lock(object first, object second)
        {
            lock (first)
            {
                both.SignalAndWait();
                lock (second) { }
            }
        }
    }

    static class Program
    {
        static async Task<int> Main(string[] args)
        {
            if (args.Length == 2) return await Asks(args[1]);
            ThreadPool.SetMinThreads(2, 2);
            Wards.Deadlock();
            await Serves();
            return 0;
        }

#if LISTENER
        /// Without ASP.NET.
        static async Task Serves()
        {
            string address = "http://127.0.0.1:" + FreePort() + "/";
            using HttpListener listener = new();
            listener.Prefixes.Add(address);
            listener.Start();
            Console.WriteLine("ready " + address);
            _ = Task.Run(async () =>
            {
                while (true) _ = Answers(await listener.GetContextAsync());
            });
            await Task.Run(Console.In.ReadToEnd);
        }

        static int FreePort()
        {
            TcpListener any = new(IPAddress.Loopback, 0);
            any.Start();
            int port = ((IPEndPoint)any.LocalEndpoint).Port;
            any.Stop();
            return port;
        }

        static async Task Answers(HttpListenerContext context)
        {
            await Task.Yield();
            string text = context.Request.Url!.AbsolutePath switch
            {
                "/hash" => Checks.Hash(),
                "/patients" => Patients.Find(),
                "/files" => Patients.Keep(),
                "/prices" => Prices.Of(),
                "/archive" => Archive.Read(),
                "/blocking" => Beds.Blocking(),
                _ => await Beds.Free(),
            };
            context.Response.Close(Encoding.UTF8.GetBytes(text), false);
        }
#else
        static async Task Serves()
        {
            WebApplicationBuilder builder = WebApplication.CreateBuilder();
            builder.Logging.ClearProviders();
            await using WebApplication app = builder.Build();
            app.Urls.Add("http://127.0.0.1:0");
            app.MapGet("/hash", Checks.Hash);
            app.MapGet("/patients", Patients.Find);
            app.MapGet("/files", Patients.Keep);
            app.MapGet("/prices", Prices.Of);
            app.MapGet("/archive", Archive.Read);
            app.MapGet("/blocking", Beds.Blocking);
            app.MapGet("/beds", Beds.Free);
            await app.StartAsync();
            var server = app.Services.GetRequiredService<IServer>();
            var addresses = server.Features.Get<IServerAddressesFeature>()!.Addresses;
            Console.WriteLine("ready " + addresses.First() + "/");
            await Task.Run(Console.In.ReadToEnd);
            await app.StopAsync();
        }
#endif

        /// What a client asks for, how many clients of it there are, and how long they pause, in milliseconds.
        static readonly (string Path, int Clients, int Pause)[] questions =
        {
            ("hash", 1, 5), ("patients", 1, 5), ("files", 1, 5), ("prices", 3, 1), ("blocking", 4, 1), ("beds", 2, 1),
        };

        static async Task<int> Asks(string address)
        {
            using HttpClient http = new() { BaseAddress = new Uri(address) };
            foreach ((string path, int clients, int pause) in questions)
                for (int client = 0; client < clients; client++)
                    _ = Asks(http, path, pause, int.MaxValue);
            Console.WriteLine("asks");
            while (await Task.Run(Console.In.ReadLine) is { } line)
            {
                for (int client = 0; client < 200; client++) _ = Asks(http, "archive", 0, 10);
                Console.WriteLine("done " + line);
            }
            return 0;
        }

        static async Task Asks(HttpClient http, string path, int pause, int times)
        {
            for (int time = 0; time < times; time++)
            {
                await http.GetStringAsync(path);
                await Task.Delay(pause);
            }
        }
    }
}
