// Prints what a few methods return while a profiler edits them.
//
//     Edits [wait]
//
// With "wait" it calls AskForEdits, and then waits until Greet returns something else, two minutes at most.
using System;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Threading;

class Box<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public string Greet() { return "hello " + typeof(T).Name; }
}

// An interface, of another module, does not make T a reference type.
class BoxOfAny<T> where T : IComparable<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public T UnsoundOfAny(T value) { return value; }
}

static class Edits
{
    static int rounds;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Greet() { return "hello"; }

    // Tried code at its very beginning, and a loop back to there.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Loop(int n)
    {
        while (true)
        {
            try
            {
                if (n > 2) return n;
                n++;
            }
            finally
            {
                rounds++;
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Seen() { return -1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static string Unsound() { return "as it was"; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void AskForEdits() { }

    static string Dynamic()
    {
        var method = new DynamicMethod("OfNoModule", typeof(string), Type.EmptyTypes);
        ILGenerator il = method.GetILGenerator();
        il.Emit(OpCodes.Ldstr, "dynamic method");
        il.Emit(OpCodes.Ret);
        return ((Func<string>)method.CreateDelegate(typeof(Func<string>)))();
    }

    static string Built()
    {
        var name = new AssemblyName("BuiltAtRunTime");
        AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(name, AssemblyBuilderAccess.Run);
        TypeBuilder type = assembly.DefineDynamicModule("Built").DefineType("BuiltType", TypeAttributes.Public);
        MethodBuilder method =
            type.DefineMethod("BuiltMethod", MethodAttributes.Public | MethodAttributes.Static, typeof(string), null);
        ILGenerator il = method.GetILGenerator();
        il.Emit(OpCodes.Ldstr, "dynamic module");
        il.Emit(OpCodes.Ret);
        return (string)type.CreateType().GetMethod("BuiltMethod").Invoke(null, null);
    }

    static int Main(string[] args)
    {
        Console.WriteLine(Greet());
        if (args.Length > 0)
        {
            AskForEdits();
            for (int i = 0; i < 24000 && Greet() == "hello"; i++) Thread.Sleep(5);
            Console.WriteLine(Greet());
        }
        Console.WriteLine("{0}, {1}", new Box<int>().Greet(), new Box<string>().Greet());
        // Often enough for another tier.
        int sum = 0;
        for (int i = 0; i < 100000; i++) sum += Loop(i % 3);
        Console.WriteLine("{0}, {1} rounds, {2} calls", sum, rounds, Seen());
        Console.WriteLine(Unsound() + ", " + new BoxOfAny<int>().UnsoundOfAny(7));
        Console.WriteLine("{0}, {1}", Dynamic(), Built());
        return 0;
    }
}
