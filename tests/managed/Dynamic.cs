// Makes a method while it runs, and calls it: once, or again and again for so many milliseconds. With `wait` a thread
// waits in a method that one has called which another one has called; it says `ready` then, until its input ends. With `run`
// the inner one of the two runs, again and again.
using System;
using System.Diagnostics;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Threading;

static class Dynamic
{
    static int Main(string[] args)
    {
        if (args.Length > 0 && args[0] == "wait") return Stand();
        if (args.Length > 0 && args[0] == "run") return Run();
        if (args.Length > 0) return Spin(int.Parse(args[0]));
        DynamicMethod twice = new DynamicMethod("Twice", typeof(int), new[] { typeof(int) }, typeof(Dynamic).Module);
        ILGenerator il = twice.GetILGenerator();
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Dup);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Ret);
        Func<int, int> call = (Func<int, int>)twice.CreateDelegate(typeof(Func<int, int>));
        Console.WriteLine("twice 21 is " + call(21));
        return 0;
    }

    static readonly ManualResetEvent never = new ManualResetEvent(false);

    [MethodImpl(MethodImplOptions.NoInlining)] public static int Waits() { return never.WaitOne() ? 1 : 0; }

    static DynamicMethod Calling(string name, MethodInfo called, params int[] arguments)
    {
        DynamicMethod made = new DynamicMethod(name, typeof(int), Type.EmptyTypes, typeof(Dynamic).Module, true);
        ILGenerator il = made.GetILGenerator();
        foreach (int argument in arguments) il.Emit(OpCodes.Ldc_I4, argument);
        il.Emit(OpCodes.Call, called);
        // Else the compiler would jump to what it calls, without a frame of its own.
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Ret);
        return made;
    }

    static int Stand()
    {
        DynamicMethod inner = Calling("Inner", typeof(Dynamic).GetMethod("Waits"));
        DynamicMethod outer = Calling("Outer", inner);
        Func<int> call = (Func<int>)outer.CreateDelegate(typeof(Func<int>));
        Thread thread = new Thread(() => Runs(call)) { Name = "dynamic", IsBackground = true };
        thread.Start();
        while ((thread.ThreadState & System.Threading.ThreadState.WaitSleepJoin) == 0) Thread.Yield();
        SayReady();
        return 0;
    }

    static int Run()
    {
        DynamicMethod outer = Calling("Outer", Counting(), int.MaxValue);
        Func<int> call = (Func<int>)outer.CreateDelegate(typeof(Func<int>));
        new Thread(() => { while (true) Runs(call); }) { Name = "dynamic", IsBackground = true }.Start();
        Thread.Sleep(200);
        SayReady();
        return 0;
    }

    static void SayReady()
    {
        Console.WriteLine("ready");
        Console.Out.Flush();
        while (Console.ReadLine() != null) { }
    }

    [MethodImpl(MethodImplOptions.NoInlining)] static void Runs(Func<int> call) { call(); }

    static DynamicMethod Counting()
    {
        DynamicMethod loop = new DynamicMethod("Loop", typeof(int), new[] { typeof(int) }, typeof(Dynamic).Module);
        ILGenerator il = loop.GetILGenerator();
        Label again = il.DefineLabel();
        il.MarkLabel(again);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Sub);
        il.Emit(OpCodes.Dup);
        il.Emit(OpCodes.Starg_S, (byte)0);
        il.Emit(OpCodes.Brtrue, again);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ret);
        return loop;
    }

    static int Spin(int milliseconds)
    {
        Func<int, int> call = (Func<int, int>)Counting().CreateDelegate(typeof(Func<int, int>));
        Stopwatch watch = Stopwatch.StartNew();
        while (watch.ElapsedMilliseconds < milliseconds) call(1000000);
        return 0;
    }
}
