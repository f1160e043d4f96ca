// target: 8.0
// Two load contexts have an assembly of the name Held: in the first it holds texts, in the second numbers. In the second, a method that
// takes one is compiled before its assembly is loaded: only the other one is there by then.

using System;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.Loader;

class Context : AssemblyLoadContext
{
    readonly string folder;
    readonly string held;

    public Context(string name, string folder, string held) : base(name)
    {
        this.folder = folder;
        this.held = held;
    }

    public Assembly Take(string name) => LoadFromAssemblyPath(Path.Combine(folder, name + ".dll"));

    protected override Assembly Load(AssemblyName name) => name.Name == "Held" ? Take(held) : null;
}

static class Program
{
    static void Main()
    {
        string folder = Path.GetDirectoryName(typeof(Program).Assembly.Location);
        Context texts = new Context("texts", folder, "HeldTexts");
        texts.Take("HeldTexts");
        MethodInfo size = Prepared(texts);
        // Loads an assembly of another name.
        Console.WriteLine(typeof(System.Xml.XmlConvert).Assembly.GetName().Name);
        Call(size, "first", "second");

        Call(Prepared(new Context("numbers", folder, "HeldNumbers")), 4711L, 12L);
    }

    static MethodInfo Prepared(Context context)
    {
        MethodInfo size = context.Take("UsesHeld").GetType("Shapes").GetMethod("Size");
        RuntimeHelpers.PrepareMethod(size.MethodHandle);
        return size;
    }

    static void Call(MethodInfo size, object first, object second)
    {
        Type type = size.GetParameters()[0].ParameterType;
        object held = Activator.CreateInstance(type);
        type.GetField("First").SetValue(held, first);
        type.GetField("Second").SetValue(held, second);
        Console.WriteLine("{0} bytes in {1}", size.Invoke(null, new[] { held }), type.Assembly.GetName().Name);
    }
}
