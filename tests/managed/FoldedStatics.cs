// Compiles a method that takes for a reference what a static field of a value type holds: `Fixed`, which is read-only, or
// `Written`. It does so itself (`own`), or by a method of another value type, which is inlined (`inlined`). It is not
// called. Prints `compiled`.

using System;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;

struct Two
{
    public long A, B;
    public Two(long a, long b) { A = a; B = b; }
}

static class Fields
{
    public static readonly Two Fixed = new Two(0x1234, 0x4321);
    public static Two Written = new Two(0x1234, 0x4321);
}

struct Holder
{
    public object Held;
    public long Other;
    public string Text() { return Held.ToString(); }
}

static class FoldedStatics
{
    static int Main(string[] args)
    {
        // The compiler looks at the values of a class that is initialised.
        RuntimeHelpers.RunClassConstructor(typeof(Fields).TypeHandle);
        DynamicMethod method = new DynamicMethod("Read", typeof(string), Type.EmptyTypes, typeof(Fields).Module, true);
        ILGenerator body = method.GetILGenerator();
        body.Emit(OpCodes.Ldsflda, typeof(Fields).GetField(args[0]));
        if (args[1] == "own")
        {
            body.Emit(OpCodes.Ldind_Ref);
            body.Emit(OpCodes.Callvirt, typeof(object).GetMethod("ToString"));
        }
        else
        {
            body.Emit(OpCodes.Call, typeof(Holder).GetMethod("Text"));
        }
        body.Emit(OpCodes.Ret);
        RuntimeHelpers.PrepareDelegate(method.CreateDelegate(typeof(Func<string>)));
        Console.WriteLine("compiled");
        return 0;
    }
}
