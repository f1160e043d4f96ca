// To be unloaded: its struct is a type argument of the core library's code, which is shared as the other argument is a
// reference type.
using System;
using System.Collections.Generic;

struct Key : IEquatable<Key>
{
    public int Number;

    public bool Equals(Key other) { return Number == other.Number; }

    public override int GetHashCode() { return Number; }
}

static class Plug
{
    static int Main()
    {
        Dictionary<Key, string> texts = new Dictionary<Key, string>();
        for (int number = 0; number < 100; number++) texts[new Key { Number = number }] = "text " + number;
        int length = 0;
        foreach (KeyValuePair<Key, string> text in texts) length += text.Value.Length;
        Console.WriteLine(length + new List<KeyValuePair<Key, string>>(texts).Count);
        return 0;
    }
}
