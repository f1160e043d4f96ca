// Emits assemblies that can be unloaded, over and over, runs each, and lets them go.
//
// Argument: how often. Prints how many were unloaded.
using System;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;

static class Program
{
    static int Main(string[] args)
    {
        int rounds = int.Parse(args[0]), unloaded = 0;
        for (int round = 0; round < rounds; round++)
        {
            WeakReference type = Run(round);
            for (int attempt = 0; type.IsAlive && attempt < 20; attempt++)
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }
            if (!type.IsAlive) unloaded++;
        }
        Console.WriteLine("unloaded " + unloaded + " of " + rounds);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static WeakReference Run(int number)
    {
        AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(
            new AssemblyName("Emitted" + number), AssemblyBuilderAccess.RunAndCollect);
        TypeBuilder type = assembly.DefineDynamicModule("Emitted").DefineType("Emitted", TypeAttributes.Public);
        FieldBuilder data = type.DefineInitializedData("Data", new byte[] { 3, 0, 0, 0 }, FieldAttributes.Public | FieldAttributes.Static);
        MethodBuilder method = type.DefineMethod(
            "Triple", MethodAttributes.Public | MethodAttributes.Static, typeof(int), new[] { typeof(int) });
        ILGenerator il = method.GetILGenerator();
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldsflda, data);
        il.Emit(OpCodes.Ldind_I4);
        il.Emit(OpCodes.Mul);
        il.Emit(OpCodes.Ret);
        Type made = type.CreateType();
        int result = (int)made.GetMethod("Triple").Invoke(null, new object[] { number });
        if (result != number * 3) throw new Exception(number + " times 3 is not " + result);
        return new WeakReference(made);
    }
}
