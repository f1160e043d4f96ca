// target: 8.0
// Two load contexts have an assembly of the name Held. The first holds texts. The second holds numbers, and its method that takes one
// is compiled before its assembly is loaded: only the other one is there by then.

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
        Type texts = new Context("texts", folder, "HeldTexts").Take("HeldTexts").GetType("Held");
        object text = Activator.CreateInstance(texts);
        texts.GetField("First").SetValue(text, "first");

        Context numbers = new Context("numbers", folder, "HeldNumbers");
        MethodInfo size = numbers.Take("UsesHeld").GetType("Shapes").GetMethod("Size");
        RuntimeHelpers.PrepareMethod(size.MethodHandle);
        Type of = size.GetParameters()[0].ParameterType;
        object number = Activator.CreateInstance(of);
        of.GetField("First").SetValue(number, 4711);
        of.GetField("Second").SetValue(number, 12);
        Console.WriteLine("{0} bytes in {1}", size.Invoke(null, new[] { number }), of.Assembly.GetName().Name);
    }
}
