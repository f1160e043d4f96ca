// target: 8.0
// Work of the thread pool that blocks on other work of the pool, so that no thread is left for that one: sync over async. For the
// example `starvation`.
//
//     Starvation [TASKS = 16] [MILLISECONDS = 100]

using System;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

static class Program
{
    static async Task<int> Main(string[] args)
    {
        int count = args.Length > 0 ? int.Parse(args[0]) : 16, milliseconds = args.Length > 1 ? int.Parse(args[1]) : 100;
        ThreadPool.SetMinThreads(2, 2);
        // All of them begin before the first one asks for more work, so they hold all threads of the pool.
        var results = await Task.WhenAll(Enumerable.Range(0, count).Select(_ => Task.Run(() => Serves(milliseconds))));
        Console.WriteLine($"served={results.Sum()}");
        return results.Sum() == count ? 0 : 1;
    }

    static int Serves(int milliseconds)
    {
        Naps(milliseconds);
        return Blocks(milliseconds);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Naps(int milliseconds) => Thread.Sleep(milliseconds);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Blocks(int milliseconds) => LoadsAsync(milliseconds).Result;

    static async Task<int> LoadsAsync(int milliseconds)
    {
        await Task.Delay(milliseconds);
        return 1;
    }
}
