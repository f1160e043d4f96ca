// Has all methods of assemblies compiled, and prints how many could be and what the others threw.
//
//     Prepares FOLDER [NAME]...
//
// Without names: all assemblies of the folder. Generic methods, and those of generic types, are compiled for object and for int.
using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;

static class Prepares
{
    const BindingFlags All = BindingFlags.Public | BindingFlags.NonPublic | BindingFlags.Static
        | BindingFlags.Instance | BindingFlags.DeclaredOnly;

    static readonly SortedDictionary<string, int> Counts =
        new SortedDictionary<string, int>(StringComparer.Ordinal);

    static void Count(string what)
    {
        int before;
        Counts.TryGetValue(what, out before);
        Counts[what] = before + 1;
    }

    static Type[] Arguments(int count, Type argument)
    {
        Type[] arguments = new Type[count];
        for (int i = 0; i < count; i++) arguments[i] = argument;
        return arguments;
    }

    static void Prepare(MethodBase definition, Type argument)
    {
        Type owner = definition.DeclaringType;
        int ofType = owner.IsGenericTypeDefinition ? owner.GetGenericArguments().Length : 0;
        int ofMethod = definition.IsGenericMethodDefinition ? definition.GetGenericArguments().Length : 0;
        if (ofType + ofMethod == 0 && argument != typeof(object)) return;
        try
        {
            MethodBase method = definition;
            if (ofType > 0)
            {
                Type closed = owner.MakeGenericType(Arguments(ofType, argument));
                method = MethodBase.GetMethodFromHandle(definition.MethodHandle, closed.TypeHandle);
            }
            if (ofMethod > 0) method = ((MethodInfo)method).MakeGenericMethod(Arguments(ofMethod, argument));
            method.MethodHandle.GetFunctionPointer();
            if (ofType + ofMethod == 0) RuntimeHelpers.PrepareMethod(method.MethodHandle);
            else
            {
                Type[] arguments = Arguments(ofType + ofMethod, argument);
                RuntimeHelpers.PrepareMethod(
                    method.MethodHandle, Array.ConvertAll(arguments, type => type.TypeHandle));
            }
            Count("prepared");
        }
        catch (Exception thrown)
        {
            Count(thrown.GetType().Name);
        }
    }

    static Type[] Types(Assembly assembly)
    {
        try { return assembly.GetTypes(); }
        catch (ReflectionTypeLoadException some) { return Array.FindAll(some.Types, type => type != null); }
    }

    static void Prepare(Assembly assembly)
    {
        foreach (Type type in Types(assembly))
        {
            var methods = new List<MethodBase>();
            methods.AddRange(type.GetMethods(All));
            // Class constructors run while others are compiled.
            methods.AddRange(type.GetConstructors(All & ~BindingFlags.Static));
            foreach (MethodBase method in methods)
            {
                bool hasNoIL = (method.GetMethodImplementationFlags() & MethodImplAttributes.CodeTypeMask) != 0;
                if (method.IsAbstract || hasNoIL) continue;
                Prepare(method, typeof(object));
                Prepare(method, typeof(int));
            }
        }
    }

    sealed class CompareFramesException : Exception { }

    // For a profiler that compares walks from all that was compiled.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void CompareFrames()
    {
        try { throw new CompareFramesException(); }
        catch (CompareFramesException) { }
    }

    static int Main(string[] args)
    {
        var names = new List<string>(args);
        names.RemoveAt(0);
        if (names.Count == 0)
            foreach (string file in Directory.GetFiles(args[0], "*.dll")) names.Add(Path.GetFileNameWithoutExtension(file));
        names.Sort(StringComparer.Ordinal);
        foreach (string name in names)
        {
            Assembly assembly;
            try { assembly = Assembly.Load(name); }
            catch (BadImageFormatException) { continue; }
            catch (IOException) { continue; }
            Prepare(assembly);
        }
        CompareFrames();
        foreach (KeyValuePair<string, int> count in Counts) Console.WriteLine("{0}: {1}", count.Key, count.Value);
        return 0;
    }
}
