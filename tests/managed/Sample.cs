// The application that `cargo xtask demo` runs: a small warehouse. Packers, each a thread with shelves of its own, work
// through orders; what is not in stock is an exception; after each shift the garbage is collected.
//
//     Sample [--threads N] [--orders N] [--seconds N]
//
// The output is the same at every run, but for the number of shifts when --seconds says how long to go on.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Threading;

namespace Warehouse
{
    class OutOfStockException : Exception
    {
        public readonly int Missing;
        public OutOfStockException(string item, int missing) : base("short of " + missing + " × " + item) { Missing = missing; }
    }

    /// Items of one kind, oldest batch first.
    class Shelf<TItem>
    {
        public class Batch
        {
            public TItem Item;
            public int Count;
        }

        readonly List<Batch> batches = new List<Batch>();

        public void Put(TItem item, int count) { batches.Add(new Batch { Item = item, Count = count }); }

        public void Take(TItem item, int count)
        {
            while (count > 0)
            {
                if (batches.Count == 0) throw new OutOfStockException(item.ToString(), count);
                int taken = Math.Min(count, batches[0].Count);
                batches[0].Count -= taken;
                count -= taken;
                if (batches[0].Count == 0) batches.RemoveAt(0);
            }
        }
    }

    struct Sku
    {
        public string Name;
        public override string ToString() { return Name; }
    }

    class Packer
    {
        static readonly string[] Names = { "anvil", "bolt", "cog", "dynamo", "eyelet" };
        readonly Dictionary<string, Shelf<Sku>> shelves = new Dictionary<string, Shelf<Sku>>();
        readonly Random random;
        public int Packed, Restocked, Abandoned, Closed;

        public Packer(int seed)
        {
            random = new Random(seed);
            foreach (string name in Names) shelves[name] = new Shelf<Sku>();
        }

        public void Work(int orders)
        {
            for (int order = 0; order < orders; order++)
            {
                string name = Names[random.Next(Names.Length)];
                Pack(new Sku { Name = name }, 1 + random.Next(12));
            }
        }

        void Pack(Sku sku, int count)
        {
            Shelf<Sku> shelf = shelves[sku.Name];
            try
            {
                shelf.Take(sku, count);
                Packed++;
            }
            catch (OutOfStockException shortage) when (shortage.Missing < 8)
            {
                shelf.Put(sku, 40);
                Restocked++;
            }
            catch (OutOfStockException)
            {
                Abandoned++;
            }
            finally
            {
                Closed++;
            }
        }
    }

    static class Program
    {
        static int Main(string[] args)
        {
            int threads = Option(args, "--threads", 3), orders = Option(args, "--orders", 60), seconds = Option(args, "--seconds", 0);
            Stopwatch clock = Stopwatch.StartNew();
            int shift = 0;
            do Shift(++shift, threads, orders);
            while (shift < 2 || clock.Elapsed.TotalSeconds < seconds);
            Console.WriteLine("closed after " + shift + " shifts");
            return 0;
        }

        static void Shift(int shift, int threads, int orders)
        {
            Packer[] packers = new Packer[threads];
            Thread[] running = new Thread[threads];
            for (int i = 0; i < threads; i++)
            {
                Packer packer = packers[i] = new Packer(shift * 100 + i);
                running[i] = new Thread(() => packer.Work(orders)) { Name = "packer-" + (i + 1) };
                running[i].Start();
            }
            foreach (Thread thread in running) thread.Join();

            int packed = 0, restocked = 0, abandoned = 0, closed = 0;
            foreach (Packer packer in packers)
            {
                packed += packer.Packed;
                restocked += packer.Restocked;
                abandoned += packer.Abandoned;
                closed += packer.Closed;
            }
            Console.WriteLine("shift {0}: {1} orders: {2} packed, {3} restocked, {4} abandoned", shift, closed, packed, restocked, abandoned);
            GC.Collect();
        }

        static int Option(string[] args, string name, int otherwise)
        {
            int at = Array.IndexOf(args, name);
            return at >= 0 && at + 1 < args.Length ? int.Parse(args[at + 1]) : otherwise;
        }
    }
}
