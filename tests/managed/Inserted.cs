// Prints what it does, step by step, for a profiler that inserts calls of `Log` between the steps.
//
//     Inserted
using System;
using System.Runtime.CompilerServices;

namespace Steps
{
    public struct Pair
    {
        public int First;
        public string Second;
    }

    // What is called. Nothing in the program calls it.
    static class Log
    {
        static int notes;

        public static void Note(string text) { Console.WriteLine("| " + text); notes++; }

        public static void Number(string text, int number) { Console.WriteLine("| {0} {1}", text, number); }

        // The result is dropped.
        public static int Count(object what)
        {
            Console.WriteLine("| {0}", what ?? "nothing");
            return ++notes;
        }

        public static void Numbers(bool a, char b, sbyte c, byte d, short e, ushort f, int g, uint h, long i, ulong j, float k, double l)
        {
            Console.WriteLine("| {0} {1} {2} {3} {4} {5} {6} {7} {8} {9} {10} {11}", a, (int)b, c, d, e, f, g, h, i, j, k, l);
        }

        public static void Values(Pair pair, object numbers, Worker worker, string text)
        {
            Console.WriteLine("| {0} {1} {2} {3}", pair.Second, numbers, worker, text ?? "null");
        }
    }

    class Worker
    {
        readonly string name;

        public Worker(string name) { this.name = name; }

        public override string ToString() { return name; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Add(int a, int b)
        {
            if (a < 0) return -1;
            if (b < 0) return -2;
            return a + b;
        }

        // A local variable for each: kept alive by the loop.
        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Sum(int[] numbers, Pair pair)
        {
            int sum = 0;
            for (int i = 0; i < numbers.Length; i++)
            {
                sum += numbers[i];
                if (sum > 100) return sum;
            }
            return sum + pair.First;
        }
    }

    static class Program
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        static string Tried(int n)
        {
            string found = "none";
            try
            {
                Console.WriteLine("tries {0}", n);
                if (n == 1) throw new InvalidOperationException("one");
                if (n == 2) return "returned";
                found = "tried";
            }
            catch (InvalidOperationException)
            {
                Console.WriteLine("catches");
                found = "caught";
            }
            finally
            {
                Console.WriteLine("ends");
            }
            return found;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static string Filtered(int n)
        {
            try
            {
                throw new ArgumentException(n.ToString());
            }
            catch (ArgumentException error) when (error.Message == "1")
            {
                Console.WriteLine("takes");
                return "filtered";
            }
            catch (ArgumentException)
            {
                return "passed";
            }
        }

        // Values are on the stack where the call is.
        [MethodImpl(MethodImplOptions.NoInlining)]
        static string OnStack(int a, string b) { return "a" + a.ToString() + b + "c" + Next(a); }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static int Next(int a) { return a + 1; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static string Switched(int n)
        {
            switch (n)
            {
                case 0: return "zero";
                case 1: return "one";
                case 2: return "two";
                default: return "many";
            }
        }

        static int Main()
        {
            var worker = new Worker("worker");
            Console.WriteLine("{0} {1} {2}", worker.Add(1, 2), worker.Add(-1, 2), worker.Add(1, -2));
            Console.WriteLine(worker.Sum(new[] { 1, 2, 3 }, new Pair { First = 4, Second = "pair" }));
            for (int n = 0; n < 3; n++) Console.WriteLine(Tried(n));
            for (int n = 0; n < 2; n++) Console.WriteLine(Filtered(n));
            Console.WriteLine(OnStack(1, "b"));
            for (int n = 0; n < 4; n++) Console.WriteLine(Switched(n));
            return 0;
        }
    }
}
