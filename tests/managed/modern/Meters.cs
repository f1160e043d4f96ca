// target: 8.0
// A meter and an event source with counters of known values, until the input ends.
//
//     Meters

using System;
using System.Collections.Generic;
using System.Diagnostics.Metrics;
using System.Diagnostics.Tracing;
using System.Threading;

[EventSource(Name = "Corprof-Meters")]
sealed class Source : EventSource
{
    readonly EventCounter size;
    readonly IncrementingPollingCounter sold;
    long sum;

    public Source()
    {
        size = new EventCounter("size", this) { DisplayUnits = "kg" };
        sold = new IncrementingPollingCounter("sold", this, () => Interlocked.Read(ref sum)) { DisplayUnits = "orders" };
    }

    public void Sell(int count)
    {
        Interlocked.Add(ref sum, count);
        size.WriteMetric(7.5f);
    }
}

static class Program
{
    static int Main()
    {
        using var meter = new Meter("Corprof.Meters", "1.0");
        var sold = meter.CreateCounter<int>("sold", "{order}", "Sold orders");
        var open = meter.CreateUpDownCounter<int>("open", "{order}");
        var waits = meter.CreateHistogram<double>("waits", "s", "Waiting times");
        meter.CreateObservableGauge("temperature", () => -42.25, "Cel");
        using var source = new Source();
        var ends = new ManualResetEvent(false);
        var works = new Thread(() =>
        {
            int turn = 0;
            open.Add(5);
            // Each turn sells three pots of tea and one of coffee.
            while (!ends.WaitOne(10))
            {
                sold.Add(3, new KeyValuePair<string, object>("kind", "tea"));
                sold.Add(1, new KeyValuePair<string, object>("kind", "coffee"));
                source.Sell(4);
                waits.Record(turn++ % 100 + 1);
            }
        });
        works.Start();
        Console.WriteLine("ready");
        Console.In.ReadToEnd();
        ends.Set();
        works.Join();
        return 0;
    }
}
