// Compiles methods whose bodies a profiler has replaced, and says what came of each.
//
// Arguments: the number of the first method to compile, then the assemblies, each of which gets a context of its own. Beside each
// lies a file with `.bodies` after its name: a token, a length and so many bytes for each method.
// Prints `> N` before method number N, counted over all assemblies, and after it `= N OUTCOME`: an exception with its message. A body that kills the process or
// never comes back is the one that was begun and not ended.
using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;

static class Program
{
    // By reflection, because the compiler's libraries do not have it.
    static readonly Type Context = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);

    // What generic parameters are replaced by: one of the first that fit, and one of the second.
    static readonly Type[] References = { typeof(object), typeof(string), typeof(Exception), typeof(Action), typeof(MemoryStream) };
    static readonly Type[] Values = { typeof(int), typeof(DayOfWeek), typeof(DateTime), typeof(char) };

    static int Main(string[] args)
    {
        int first = int.Parse(args[0]), number = 0;
        for (int at = 1; at < args.Length; at++)
        {
            List<int> tokens = Tokens(args[at] + ".bodies");
            if (number + tokens.Count <= first)
            {
                number += tokens.Count;
                continue;
            }
            object context = Activator.CreateInstance(Context, new object[] { "mutants " + at, false });
            Assembly assembly = (Assembly)Context.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { args[at] });
            LoadReferences(assembly);
            foreach (int token in tokens)
            {
                if (number >= first)
                {
                    Console.WriteLine("> " + number);
                    Console.WriteLine("= " + number + " " + Outcome(assembly.ManifestModule, token));
                }
                number++;
            }
        }
        Console.WriteLine("done");
        return 0;
    }

    // The verifier in the process knows the types of what is loaded. Some are where the referenced assembly says.
    static void LoadReferences(Assembly assembly)
    {
        foreach (AssemblyName name in assembly.GetReferencedAssemblies())
        {
            Assembly reference = Assembly.Load(name);
            try
            {
                typeof(Assembly).GetMethod("GetForwardedTypes").Invoke(reference, null);
            }
            catch (TargetInvocationException)
            {
                // Not all of them can be loaded.
            }
        }
    }

    static List<int> Tokens(string path)
    {
        List<int> tokens = new List<int>();
        using (BinaryReader reader = new BinaryReader(File.OpenRead(path)))
        {
            while (reader.BaseStream.Position < reader.BaseStream.Length)
            {
                tokens.Add(reader.ReadInt32());
                int length = reader.ReadInt32();
                reader.BaseStream.Seek(length, SeekOrigin.Current);
            }
        }
        return tokens;
    }

    // Compiles each instantiation: `ok` if all can be, `none` if there is none, else the first exception.
    static string Outcome(Module module, int token)
    {
        string worst = "none";
        try
        {
            MethodBase definition = module.ResolveMethod(token);
            foreach (Type[] candidates in new[] { References, Values })
            {
                Type[] arguments;
                MethodBase method = Instantiate(definition, candidates, out arguments);
                if (method == null) continue;
                string outcome = Compile(method, arguments);
                if (worst == "none" || outcome.StartsWith("InvalidProgramException:") || worst == "ok") worst = outcome;
                if (arguments == null) break;
            }
        }
        catch (Exception exception)
        {
            return "lookup:" + exception.GetType().Name;
        }
        return worst;
    }

    static string Compile(MethodBase method, Type[] arguments)
    {
        try
        {
            // Preparing alone compiles nothing for one in eight methods, virtual ones for instance.
            method.MethodHandle.GetFunctionPointer();
            if (arguments == null) RuntimeHelpers.PrepareMethod(method.MethodHandle);
            else RuntimeHelpers.PrepareMethod(method.MethodHandle, Array.ConvertAll(arguments, type => type.TypeHandle));
            return "ok";
        }
        catch (Exception exception)
        {
            return exception.GetType().Name + ": " + exception.Message.Replace('\n', ' ').Replace('\r', ' ');
        }
    }

    // The method with all generic parameters replaced; `null` if no candidate fits them all.
    static MethodBase Instantiate(MethodBase method, Type[] candidates, out Type[] arguments)
    {
        arguments = null;
        Type owner = method.DeclaringType;
        int ofType = owner != null && owner.IsGenericTypeDefinition ? owner.GetGenericArguments().Length : 0;
        int ofMethod = method.IsGenericMethodDefinition ? method.GetGenericArguments().Length : 0;
        if (ofType + ofMethod == 0) return method;
        foreach (Type candidate in candidates)
        {
            try
            {
                arguments = new Type[ofType + ofMethod];
                for (int number = 0; number < arguments.Length; number++) arguments[number] = candidate;
                MethodBase closed = method;
                if (ofType > 0)
                {
                    Type[] own = new Type[ofType];
                    Array.Copy(arguments, own, ofType);
                    closed = MethodBase.GetMethodFromHandle(method.MethodHandle, owner.MakeGenericType(own).TypeHandle);
                }
                if (ofMethod > 0)
                {
                    Type[] own = new Type[ofMethod];
                    Array.Copy(arguments, ofType, own, 0, ofMethod);
                    closed = ((MethodInfo)closed).MakeGenericMethod(own);
                }
                return closed;
            }
            catch (ArgumentException) { }
            catch (TypeLoadException) { }
        }
        arguments = null;
        return null;
    }
}
