// A little of everything that a profiler hears of, each in a method of its own, in the same order each time.
//
//     Sequence
//
// The live test of the same name compares what a profiler sees of it with what it sees of the same steps on the fake CLR.
// Beside it must lie Hello.dll, which is loaded, run and unloaded.
using System;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

class Item { public object Filling; }

[StructLayout(LayoutKind.Sequential)]
class Pinned { public int Number; }

class Shelf<T> { public T[] Items; }

class Oops : Exception { }

static class Sequence
{
    // By reflection, because the compiler's libraries do not have it.
    static readonly Type Context = Type.GetType("System.Runtime.Loader.AssemblyLoadContext, System.Private.CoreLib", true);

    static int answer;

    static int Main()
    {
        Allocates();
        Inlines(20);
        Throws();
        Thread worker = new Thread(Works) { Name = "worker" };
        worker.Start();
        worker.Join();
        Collects();
        Ends();
        WeakReference guest = Invites();
        for (int attempt = 0; guest.IsAlive && attempt < 50; attempt++)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
        return guest.IsAlive ? 1 : answer;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Allocates()
    {
        Item item = new Item();
        Shelf<Item> shelf = new Shelf<Item> { Items = new Item[2] };
        shelf.Items[0] = item;
        GC.KeepAlive(shelf);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Inlines(int half) { answer = Twice(half) + 2; }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static int Twice(int half) { return 2 * half; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throws()
    {
        try { Declines(); }
        catch (Oops) { answer--; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Declines()
    {
        try { Tidies(); }
        catch (Oops) when (answer == 0) { Ends(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Tidies()
    {
        try { Raises(); }
        finally { answer++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Raises() { throw new Oops(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Works() { GC.KeepAlive(new Item()); }

    // In the order of their addresses: one that goes, two that are moved into its place, one that is pinned. The array is
    // too large for the heap of these, and is not moved.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Collects()
    {
        GC.KeepAlive(new Item());
        Item first = new Item();
        Item second = new Item { Filling = first };
        Pinned pinned = new Pinned();
        Item[] large = new Item[20000];
        GCHandle handle = GCHandle.Alloc(pinned, GCHandleType.Pinned);
        GC.Collect();
        handle.Free();
        GC.KeepAlive(first);
        GC.KeepAlive(second);
        GC.KeepAlive(large);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Ends() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static WeakReference Invites()
    {
        string path = Path.Combine(Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location), "Hello.dll");
        object context = Activator.CreateInstance(Context, new object[] { "guest", true });
        Assembly assembly = (Assembly)Context.GetMethod("LoadFromAssemblyPath").Invoke(context, new object[] { path });
        assembly.EntryPoint.Invoke(null, new object[] { new string[0] });
        Context.GetMethod("Unload").Invoke(context, null);
        return new WeakReference(context);
    }
}
