// A large heap of known size, for figures about snapshots.
//
//     Big [OBJECTS = 10000000]
//
// Of each five objects, one is a Group that refers to four Items, of which two refer back; a static array refers to all Groups. So
// there are 1.4 references an object. Says `ready`, and ends with its input; answers each line of it.
using System;

sealed class Item
{
    public Group Back;
}

sealed class Group
{
    public Item A, B, C, D;
}

static class Big
{
    static Group[] groups;

    static int Main(string[] args)
    {
        groups = new Group[(args.Length > 0 ? int.Parse(args[0]) : 10000000) / 5];
        for (int i = 0; i < groups.Length; i++)
        {
            var group = new Group { A = new Item(), B = new Item(), C = new Item(), D = new Item() };
            group.A.Back = group.B.Back = group;
            groups[i] = group;
        }
        Answer("ready");
        for (string line = Console.ReadLine(); line != null && line != "end"; line = Console.ReadLine()) Answer("done " + line);
        return 0;
    }

    static void Answer(string line)
    {
        Console.WriteLine(line);
        Console.Out.Flush();
    }
}
