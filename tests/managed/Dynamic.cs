// Makes a method while it runs, and calls it.
using System;
using System.Reflection.Emit;

static class Dynamic
{
    static int Main()
    {
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
}
