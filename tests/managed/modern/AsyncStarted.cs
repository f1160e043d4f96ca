// target: 10.0
// option: -features:runtime-async=on
// option: -nowarn:SYSLIB5007
// Operations that nobody awaits compute below an await: one that `Task.Run` has started, one that was called without an
// `await`, and one that was called before the first `await` of its caller, which awaits it later. Each was started by a method
// of its own, which another one awaits. The methods of Shop are suspended by the runtime itself, those of Machines are state
// machines.
//
//     AsyncStarted shop|machines
//
// It says `ready`, and works until its input ends.
using System;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace System.Runtime.CompilerServices
{
    // The compiler knows it by its name.
    [AttributeUsage(AttributeTargets.Method)]
    sealed class RuntimeAsyncMethodGenerationAttribute : Attribute
    {
        public RuntimeAsyncMethodGenerationAttribute(bool isOn) => _ = isOn;
    }
}

static class Helper
{
    public static volatile bool IsOver;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Run() => Spin();

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Forgotten() => Spin();

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Ahead() => Spin();

    // It has not ended yet, though a busy machine may give this thread its processor back later than that: who awaits it is
    // suspended.
    public static Task Pause()
    {
        Task pause;
        do
        {
            pause = Task.Delay(2);
        }
        while (pause.IsCompleted);
        return pause;
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static long Spin()
    {
        long sum = 0;
        for (int i = 0; i < 3_000_000; i++)
        {
            sum += i ^ (sum >> 3);
        }
        return sum;
    }
}

static class Shop
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task ComputeInRun()
    {
        await Helper.Pause();
        Helper.Run();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task ComputeForgotten()
    {
        await Helper.Pause();
        Helper.Forgotten();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task ComputeAhead()
    {
        await Helper.Pause();
        Helper.Ahead();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task StartRun()
    {
        await Task.Delay(1);
        _ = Task.Run(ComputeInRun);
        await Task.Delay(30);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task StartForgotten()
    {
        await Task.Delay(1);
        _ = ComputeForgotten();
        await Task.Delay(30);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task StartAhead() => await Task.WhenAll(ComputeAhead(), Task.Delay(30));

    public static async Task Work()
    {
        while (!Helper.IsOver)
        {
            await StartRun();
            await StartForgotten();
            await StartAhead();
        }
    }
}

static class Machines
{
    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task ComputeInRun()
    {
        await Helper.Pause();
        Helper.Run();
    }

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task ComputeForgotten()
    {
        await Helper.Pause();
        Helper.Forgotten();
    }

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task ComputeAhead()
    {
        await Helper.Pause();
        Helper.Ahead();
    }

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task StartRun()
    {
        await Task.Delay(1);
        _ = Task.Run(ComputeInRun);
        await Task.Delay(30);
    }

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task StartForgotten()
    {
        await Task.Delay(1);
        _ = ComputeForgotten();
        await Task.Delay(30);
    }

    [RuntimeAsyncMethodGeneration(false)]
    [MethodImpl(MethodImplOptions.NoInlining)]
    static async Task StartAhead() => await Task.WhenAll(ComputeAhead(), Task.Delay(30));

    [RuntimeAsyncMethodGeneration(false)]
    public static async Task Work()
    {
        while (!Helper.IsOver)
        {
            await StartRun();
            await StartForgotten();
            await StartAhead();
        }
    }
}

static class Program
{
    static async Task<int> Main(string[] arguments)
    {
        Task work = arguments[0] == "machines" ? Machines.Work() : Shop.Work();
        Console.WriteLine("ready");
        await Task.Run(Console.In.ReadToEnd);
        Helper.IsOver = true;
        await work;
        return 0;
    }
}
