// A known set of generic types and methods, each used once and none inlined.
//
// Prints one line for each, as C# writes it.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;

namespace Kinds
{
    struct Point { }

    class Pair<TFirst, TSecond>
    {
        public TFirst First = default(TFirst);
        public TSecond Second = default(TSecond);

        [MethodImpl(MethodImplOptions.NoInlining)]
        public string Describe() { return "Pair<" + typeof(TFirst).Name + ", " + typeof(TSecond).Name + ">"; }
    }

    class Outer<T>
    {
        public class Inner<U>
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            public string Describe() { return "Outer<" + typeof(T).Name + ">.Inner<" + typeof(U).Name + ">"; }
        }

        public class Plain
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            public string Describe() { return "Outer<" + typeof(T).Name + ">.Plain"; }
        }
    }

    static class Methods
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static string Swap<T>(ref T a, ref T b)
        {
            T old = a;
            a = b;
            b = old;
            return "Swap<" + typeof(T).Name + ">";
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static string Shapes(int[] line, string[,] square, Point[][] jagged, ref Point point, List<Pair<int, string>> list, int? maybe)
        {
            return "Shapes";
        }
    }

    static class Program
    {
        static int Main()
        {
            Console.WriteLine(new Pair<int, string>().Describe());
            Console.WriteLine(new Pair<string, object>().Describe());
            Console.WriteLine(new Pair<Point, long>().Describe());
            Console.WriteLine(new Outer<int>.Inner<string>().Describe());
            Console.WriteLine(new Outer<string>.Inner<Point>().Describe());
            Console.WriteLine(new Outer<byte>.Plain().Describe());
            int i = 1, j = 2;
            Console.WriteLine(Methods.Swap(ref i, ref j));
            string s = "s", t = "t";
            Console.WriteLine(Methods.Swap(ref s, ref t));
            Point point = new Point();
            Console.WriteLine(Methods.Shapes(new int[1], new string[1, 1], new Point[1][], ref point, new List<Pair<int, string>>(), null));
            return 0;
        }
    }
}
