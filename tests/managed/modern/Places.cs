// target: 8.0
// option: -debug:embedded
// Works in a lambda, in an async method and in a method that was compiled while the program ran, on a thread called placer.
//
//     Places ROUNDS
//
// A round is about a millisecond of work, whatever else the machine does.

using System;
using System.Linq.Expressions;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

static class Places
{
    static int Main(string[] args)
    {
        Thread thread = new Thread(() => Work(int.Parse(args[0]))) { Name = "placer" };
        thread.Start();
        thread.Join();
        Console.WriteLine("done");
        return 0;
    }

    static void Work(int rounds)
    {
        Func<int, int> lambda = [MethodImpl(MethodImplOptions.NoInlining)] (int number) =>
            Burn(number) + 1; // the lambda's first line
        ParameterExpression number = Expression.Parameter(typeof(int));
        Expression burns = Expression.Call(typeof(Places).GetMethod(nameof(Burn)), number);
        Expression body = Expression.Add(burns, Expression.Constant(1));
        Func<int, int> compiled = Expression.Lambda<Func<int, int>>(body, "Compiled", new[] { number }).Compile();
        for (int round = 0; round < rounds; round++)
        {
            lambda(round);
            compiled(round);
            Later(round).Wait();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task<int> Later(int number)
    {
        int burnt = Burn(number); // the async method's first line
        await Task.CompletedTask;
        return burnt + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Burn(int number)
    {
        for (int i = 0; i < 200_000; i++) // the plain method's first line
            number = number * 31 + i;
        return number;
    }
}
