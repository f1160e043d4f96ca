// target: 8.0
// Writes events whose fields the runtime describes otherwise than it writes them, and some that it describes well: once for each
// line of its standard input, which it answers.
//
//     Described
using System;
using System.Diagnostics.Tracing;

Console.WriteLine("ready");
while (Console.ReadLine() is { } line)
{
    ManifestSource.Log.Bools(true, false, "text");
    ManifestSource.Log.Letter('x', 55);
    ManifestSource.Log.Small(200, -3);
    ManifestSource.Log.Wide(-5, 6);
    ManifestSource.Log.Bytes(11, [1, 2, 3], 22);
    ManifestSource.Log.Enums(1, "n", Color.Green, 5);
    SelfDescribingSource.Log.Bools(false, true, "text");
    SelfDescribingSource.Log.Mixed(5, true, "text", false);
    SelfDescribingSource.Log.Lists([true, false], ['a', 'b'], 4);
    SelfDescribingSource.Log.Amount(1.5m, "text");
    SelfDescribingSource.Log.Duration(TimeSpan.FromSeconds(1), 122);
    SelfDescribingSource.Log.Write("Nested", new { inner = new Inner(), after = 5 });
    SelfDescribingSource.Log.Write("Nullable", new { value = (int?)5, after = 4 });
    SelfDescribingSource.Log.Write("Moment", new { value = new DateTimeOffset(2026, 1, 2, 3, 4, 5, TimeSpan.Zero) });
    SelfDescribingSource.Log.Write("Empty");
    Console.WriteLine($"done {line}");
}

enum Color : byte { Green = 200 }

[EventData]
class Inner
{
    public string Name { get; set; } = "in";
    public bool Flag { get; set; } = true;
}

[EventSource(Name = "Corprof-Manifest")]
sealed class ManifestSource : EventSource
{
    public static readonly ManifestSource Log = new();

    [Event(1)]
    public void Bools(bool a, bool b, string s) => WriteEvent(1, a, b, s);

    [Event(2)]
    public void Letter(char c, int after) => WriteEvent(2, c, after);

    [Event(3)]
    public void Small(byte a, sbyte b) => WriteEvent(3, a, b);

    [Event(4)]
    public void Wide(int a, long b) => WriteEvent(4, a, b);

    [Event(5)]
    public void Bytes(int before, byte[] x, int after) => WriteEvent(5, before, x, after);

    [Event(6)]
    public void Enums(int id, string name, Color e, byte b) => WriteEvent(6, id, name, e, b);
}

[EventSource(Name = "Corprof-SelfDescribing")]
sealed class SelfDescribingSource() : EventSource(EventSourceSettings.EtwSelfDescribingEventFormat)
{
    public static readonly SelfDescribingSource Log = new();

    [Event(1)]
    public void Bools(bool a, bool b, string s) => WriteEvent(1, a, b, s);

    [Event(2)]
    public void Mixed(int n, bool a, string s, bool c) => WriteEvent(2, n, a, s, c);

    [Event(3)]
    public void Lists(bool[] flags, char[] letters, int after) => WriteEvent(3, flags, letters, after);

    [Event(4)]
    public void Amount(decimal d, string s) => WriteEvent(4, d, s);

    [Event(5)]
    public void Duration(TimeSpan t, int after) => WriteEvent(5, t, after);
}
