// Names a background thread, and ends without waiting for it.
using System;
using System.Threading;

static class Named
{
    static int Main()
    {
        new Thread(() => { Thread.CurrentThread.Name = "held"; }) { IsBackground = true }.Start();
        Thread.Sleep(200);
        Console.WriteLine("done");
        return 5;
    }
}
