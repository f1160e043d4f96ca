// Makes a method while it runs, and calls it: once, or again and again for so many milliseconds.
using System;
using System.Diagnostics;
using System.Reflection.Emit;

static class Dynamic
{
    static int Main(string[] args)
    {
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

    static int Spin(int milliseconds)
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
        Func<int, int> call = (Func<int, int>)loop.CreateDelegate(typeof(Func<int, int>));
        Stopwatch watch = Stopwatch.StartNew();
        while (watch.ElapsedMilliseconds < milliseconds) call(1000000);
        return 0;
    }
}
