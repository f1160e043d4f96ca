// target: 10.0
// framework: aspnet
// A web application with handlers of several kinds, which it asks twice, one after another.
using System;
using System.Linq;
using System.Net.Http;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Hosting.Server.Features;
using Microsoft.AspNetCore.Mvc;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace Bakery
{
    public record Order(string Cake, int Pieces);

    [ApiController, Route("cakes")]
    public class CakesController : ControllerBase
    {
        [HttpGet("{id}")] public string Get(int id, string topping) => "cake " + id + " with " + topping;
        [HttpPost] public async Task<string> Post([FromBody] Order order) { await Task.Yield(); return order.Cake; }
        [HttpDelete("{id}")] public string Delete(Guid id) => Bin(id);
        string Bin(Guid id) => "gone " + id;
    }

    static class Program
    {
        static async Task<int> Main(string[] args)
        {
            var builder = WebApplication.CreateBuilder();
            builder.Logging.ClearProviders();
            builder.Services.AddControllers().AddApplicationPart(typeof(Program).Assembly);
            await using var app = builder.Build();
            app.Urls.Add("http://127.0.0.1:0");
            app.MapControllers();
            app.MapGet("/hello/{name}", (string name, int? times) => string.Concat(Enumerable.Repeat("hello " + name, times ?? 1)));
            app.MapGet("/slow/{id}", async (int id) => { await Task.Delay(10); return "slow " + id; });
            app.MapPost("/order", (Order order) => order.Pieces);
            await app.StartAsync();
            string root = app.Services.GetRequiredService<IServer>().Features.Get<IServerAddressesFeature>().Addresses.First();
            using var http = new HttpClient();
            for (int i = 0; i < 2; i++)
            {
                Console.WriteLine(await http.GetStringAsync(root + "/cakes/" + i + "?topping=cream"));
                Console.WriteLine(await (await http.PostAsync(root + "/cakes", Json("{\"cake\":\"Sacher\",\"pieces\":3}"))).Content.ReadAsStringAsync());
                Console.WriteLine(await (await http.DeleteAsync(root + "/cakes/00000000-0000-0000-0000-00000000000" + i)).Content.ReadAsStringAsync());
                Console.WriteLine(await http.GetStringAsync(root + "/hello/Ada?times=2"));
                Console.WriteLine(await http.GetStringAsync(root + "/slow/" + i));
                Console.WriteLine(await (await http.PostAsync(root + "/order", Json("{\"cake\":\"Linzer\",\"pieces\":5}"))).Content.ReadAsStringAsync());
            }
            await app.StopAsync();
            return 0;
        }
        static StringContent Json(string text) => new StringContent(text, System.Text.Encoding.UTF8, "application/json");
    }
}
