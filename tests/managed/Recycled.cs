// Makes methods while it runs, calls each for some milliseconds, and lets it go, so that the next takes its memory.
//
//     Recycled [METHODS = 100] [MILLISECONDS = 10]
//
// Three are called Even, the next three Odd, and so on; they are alike but for what they call: a method that works and
// says whose it is, InEven or InOdd.
using System;
using System.Diagnostics;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;

static class Recycled
{
    static int Main(string[] args)
    {
        int methods = args.Length > 0 ? int.Parse(args[0]) : 100;
        int milliseconds = args.Length > 1 ? int.Parse(args[1]) : 10;
        long sum = 0;
        for (int number = 0; number < methods; number++)
        {
            sum += Runs(number / 3 % 2 == 0 ? "Even" : "Odd", milliseconds);
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
        Console.WriteLine("done {0}", sum != 42);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Runs(string name, int milliseconds)
    {
        DynamicMethod method = new DynamicMethod(name, typeof(long), new[] { typeof(int) }, typeof(Recycled).Module, true);
        ILGenerator il = method.GetILGenerator();
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Call, typeof(Recycled).GetMethod("In" + name, BindingFlags.Static | BindingFlags.NonPublic));
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Conv_I8);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Ret);
        Func<int, long> call = (Func<int, long>)method.CreateDelegate(typeof(Func<int, long>));
        Stopwatch watch = Stopwatch.StartNew();
        long sum = 0;
        while (watch.ElapsedMilliseconds < milliseconds) sum += call(100000);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long InEven(int turns) { return Burn(turns) + 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long InOdd(int turns) { return Burn(turns) + 2; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Burn(int turns)
    {
        long value = turns;
        for (int i = 0; i < turns; i++) value = value * 6364136223846793005 + 1442695040888963407;
        return value;
    }
}
