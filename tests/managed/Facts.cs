// Metadata of every kind that a profiler can ask for, for live/metadata.rs to find again.
//
// Prints two lines, so that there are known literal strings.
using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;

[assembly: Facts.Marker("of the assembly")]

namespace Facts
{
    [AttributeUsage(AttributeTargets.All)]
    class MarkerAttribute : Attribute
    {
        public int Number;
        public MarkerAttribute(string text) { Number = text.Length; }
    }

    interface IShape { void Draw(); }

    class Base { }

    class Known<T, U> : Base, IShape where T : Base, IShape
    {
        public const int Answer = 42;
        public const long Far = -5000000000;
        public const double Half = 0.5;
        public const char Letter = 'é';
        public const bool Yes = true;
        public const string Text = "forty-two";
        public const object Nothing = null;
        [Marker("of a field", Number = 7)] static string[] names = { "a" };

        public event EventHandler Changed;

        public string this[int at] { get { return names[at]; } }

        public int Size { get; set; }

        [Marker("of a method")]
        public bool Method(ref int first, out T second, string third = "default", int fourth = -4, U last = default(U))
        {
            second = null;
            if (Changed != null) Changed(this, EventArgs.Empty);
            return first > fourth;
        }

        public void Draw() { }

        public class Nested { }
    }

    class Circle : Base, IShape { public void Draw() { } }

    static class Native
    {
        [DllImport("libfacts", EntryPoint = "facts_answer", CallingConvention = CallingConvention.Cdecl)]
        public static extern int Answer(int question);
    }

    static class Program
    {
        static int Main()
        {
            Known<Circle, int> known = new Known<Circle, int>();
            int first = 1;
            Circle second;
            known.Method(ref first, out second);
            Console.WriteLine("a literal, zero \0 inside".Length);
            Console.WriteLine(Array.Find(new List<string> { "ñ" }.ToArray(), name => name == "ñ") == null ? "" : "found");
            return 0;
        }
    }
}
