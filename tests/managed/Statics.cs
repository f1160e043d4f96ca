// Static fields of classes that are generic and of one that is not.
//
//     Statics
using System;
using System.Runtime.CompilerServices;

class Generic<T>
{
    public static int Count = 3;
    public static T Last = default(T);
    [ThreadStatic] public static int PerThread;
    public const int Literal = 5;
}

class Plain
{
    public static int Count = 4;
    public const int Literal = 6;
    public int Instance;
}

static class Statics
{
    static int Main()
    {
        Generic<int>.Count++;
        Generic<string>.Count++;
        Generic<int>.PerThread = Generic<string>.PerThread = 2;
        Plain.Count++;
        object kept = new Plain { Instance = 1 };
        Ready();
        Console.WriteLine("{0} {1} {2}", Generic<int>.Count, Generic<string>.Count, kept);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Ready() { }
}
