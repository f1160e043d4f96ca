// Methods of nothing, each called once in a try: their local variables are what a profiler makes of them.
using System;
using System.Collections.Generic;
using System.Reflection;

static class Locals
{
    static int Main()
    {
        int called = 0;
        foreach (MethodInfo method in typeof(Empty).GetMethods(BindingFlags.Static | BindingFlags.NonPublic))
        {
            try { method.Invoke(null, null); }
            catch (TargetInvocationException) { }
            catch (TypeLoadException) { }
            catch (BadImageFormatException) { }
            catch (InvalidProgramException) { }
            called += 1;
        }
        GC.Collect();
        Console.WriteLine("{0} methods are called", called);
        return 0;
    }
}

struct Pair<T> { public T First, Second; }

static class Empty
{
    static int M000() { return new List<Pair<int>>().Count; }
    static int M001() { return new List<Pair<int>>().Count; }
    static int M002() { return new List<Pair<int>>().Count; }
    static int M003() { return new List<Pair<int>>().Count; }
    static int M004() { return new List<Pair<int>>().Count; }
    static int M005() { return new List<Pair<int>>().Count; }
    static int M006() { return new List<Pair<int>>().Count; }
    static int M007() { return new List<Pair<int>>().Count; }
    static int M008() { return new List<Pair<int>>().Count; }
    static int M009() { return new List<Pair<int>>().Count; }
    static int M010() { return new List<Pair<int>>().Count; }
    static int M011() { return new List<Pair<int>>().Count; }
    static int M012() { return new List<Pair<int>>().Count; }
    static int M013() { return new List<Pair<int>>().Count; }
    static int M014() { return new List<Pair<int>>().Count; }
    static int M015() { return new List<Pair<int>>().Count; }
    static int M016() { return new List<Pair<int>>().Count; }
    static int M017() { return new List<Pair<int>>().Count; }
    static int M018() { return new List<Pair<int>>().Count; }
    static int M019() { return new List<Pair<int>>().Count; }
    static int M020() { return new List<Pair<int>>().Count; }
    static int M021() { return new List<Pair<int>>().Count; }
    static int M022() { return new List<Pair<int>>().Count; }
    static int M023() { return new List<Pair<int>>().Count; }
    static int M024() { return new List<Pair<int>>().Count; }
    static int M025() { return new List<Pair<int>>().Count; }
    static int M026() { return new List<Pair<int>>().Count; }
    static int M027() { return new List<Pair<int>>().Count; }
    static int M028() { return new List<Pair<int>>().Count; }
    static int M029() { return new List<Pair<int>>().Count; }
    static int M030() { return new List<Pair<int>>().Count; }
    static int M031() { return new List<Pair<int>>().Count; }
    static int M032() { return new List<Pair<int>>().Count; }
    static int M033() { return new List<Pair<int>>().Count; }
    static int M034() { return new List<Pair<int>>().Count; }
    static int M035() { return new List<Pair<int>>().Count; }
    static int M036() { return new List<Pair<int>>().Count; }
    static int M037() { return new List<Pair<int>>().Count; }
    static int M038() { return new List<Pair<int>>().Count; }
    static int M039() { return new List<Pair<int>>().Count; }
    static int M040() { return new List<Pair<int>>().Count; }
    static int M041() { return new List<Pair<int>>().Count; }
    static int M042() { return new List<Pair<int>>().Count; }
    static int M043() { return new List<Pair<int>>().Count; }
    static int M044() { return new List<Pair<int>>().Count; }
    static int M045() { return new List<Pair<int>>().Count; }
    static int M046() { return new List<Pair<int>>().Count; }
    static int M047() { return new List<Pair<int>>().Count; }
    static int M048() { return new List<Pair<int>>().Count; }
    static int M049() { return new List<Pair<int>>().Count; }
    static int M050() { return new List<Pair<int>>().Count; }
    static int M051() { return new List<Pair<int>>().Count; }
    static int M052() { return new List<Pair<int>>().Count; }
    static int M053() { return new List<Pair<int>>().Count; }
    static int M054() { return new List<Pair<int>>().Count; }
    static int M055() { return new List<Pair<int>>().Count; }
    static int M056() { return new List<Pair<int>>().Count; }
    static int M057() { return new List<Pair<int>>().Count; }
    static int M058() { return new List<Pair<int>>().Count; }
    static int M059() { return new List<Pair<int>>().Count; }
    static int M060() { return new List<Pair<int>>().Count; }
    static int M061() { return new List<Pair<int>>().Count; }
    static int M062() { return new List<Pair<int>>().Count; }
    static int M063() { return new List<Pair<int>>().Count; }
    static int M064() { return new List<Pair<int>>().Count; }
    static int M065() { return new List<Pair<int>>().Count; }
    static int M066() { return new List<Pair<int>>().Count; }
    static int M067() { return new List<Pair<int>>().Count; }
    static int M068() { return new List<Pair<int>>().Count; }
    static int M069() { return new List<Pair<int>>().Count; }
    static int M070() { return new List<Pair<int>>().Count; }
    static int M071() { return new List<Pair<int>>().Count; }
    static int M072() { return new List<Pair<int>>().Count; }
    static int M073() { return new List<Pair<int>>().Count; }
    static int M074() { return new List<Pair<int>>().Count; }
    static int M075() { return new List<Pair<int>>().Count; }
    static int M076() { return new List<Pair<int>>().Count; }
    static int M077() { return new List<Pair<int>>().Count; }
    static int M078() { return new List<Pair<int>>().Count; }
    static int M079() { return new List<Pair<int>>().Count; }
    static int M080() { return new List<Pair<int>>().Count; }
    static int M081() { return new List<Pair<int>>().Count; }
    static int M082() { return new List<Pair<int>>().Count; }
    static int M083() { return new List<Pair<int>>().Count; }
    static int M084() { return new List<Pair<int>>().Count; }
    static int M085() { return new List<Pair<int>>().Count; }
    static int M086() { return new List<Pair<int>>().Count; }
    static int M087() { return new List<Pair<int>>().Count; }
    static int M088() { return new List<Pair<int>>().Count; }
    static int M089() { return new List<Pair<int>>().Count; }
    static int M090() { return new List<Pair<int>>().Count; }
    static int M091() { return new List<Pair<int>>().Count; }
    static int M092() { return new List<Pair<int>>().Count; }
    static int M093() { return new List<Pair<int>>().Count; }
    static int M094() { return new List<Pair<int>>().Count; }
    static int M095() { return new List<Pair<int>>().Count; }
    static int M096() { return new List<Pair<int>>().Count; }
    static int M097() { return new List<Pair<int>>().Count; }
    static int M098() { return new List<Pair<int>>().Count; }
    static int M099() { return new List<Pair<int>>().Count; }
}
