//! Names as Roslyn, mcs, VB and F# write them into metadata, with their source forms.

use super::*;

#[track_caller]
fn is(name: &str, label: &str) {
    assert_eq!(managed(name, Machine::Async), label, "{name}");
}

#[test]
fn the_end_of_the_name_is_what_counts() {
    is("Shop.Web.Catalogue.Totals(int32, string)", "Catalogue.Totals");
    is("Main()", "Main");
    is("Program.Main(string[])", "Program.Main");
    is("Shop.Outer+Inner.Run()", "Inner.Run");
    is("Shop.Outer.Inner.Run()", "Inner.Run");
    is("Shop.Order..ctor(int32)", "new Order");
    is("Shop.Order..cctor()", "Order (static)");
    is("Shop.Order.get_Total()", "Order.Total (get)");
    is("Shop.Order.set_Item(int32, string)", "Order.this[] (set)");
    is("Shop.Order.op_Equality(Shop.Order, Shop.Order)", "Order.op_Equality");
    is("Shop.Order.System.IDisposable.Dispose()", "IDisposable.Dispose");
    is("A.B(method void *(int32))", "A.B");
}

#[test]
fn type_arguments_are_short_and_in_csharp() {
    is("System.Collections.Generic.List<System.Int32>.Add(int32)", "List<int>.Add");
    is("System.Collections.Generic.List`1<int32>.Add(!0)", "List<int>.Add");
    is(
        "System.Collections.Generic.Dictionary<string, Shop.Outer+Item[]>.FindValue(string)",
        "Dictionary<string, Item[]>.FindValue",
    );
    is("Shop.Cache<System.__Canon>.Get<System.__Canon>(!!0)", "Cache<…>.Get<…>");
    is("N.A<N.B<N.C, native int>>.D()", "A<B<C, nint>>.D");
    is("Shop.Cache`1.Get()", "Cache.Get");
    is("N.Map<System.Int32[], N.É[,], int?>.D()", "Map<int[], É[,], int?>.D");
    is("N.Builder.Start<Program+<<Main>$>d__0>(T&)", "Builder.Start<Main>");
    is("N.Box<N.Orders.<LoadAsync>d__3, X>.MoveNext()", "Box<LoadAsync, X>.MoveNext");
    is("N.Where<N.Program+<>c, <>f__AnonymousType0<int>>.Do()", "Where<closure, anonymous type>.Do");
}

#[test]
fn an_allocated_type_loses_its_namespaces_and_nothing_else() {
    is("new Shop.Line", "new Line");
    is("new Shop.Line[]", "new Line[]");
    is("new System.Byte[]", "new byte[]");
    is("new System.Collections.Generic.List<Shop.Line[]>", "new List<Line[]>");
    is("new System.Collections.Generic.Dictionary<string, Shop.Line>.Entry[]", "new Dictionary<string, Line>.Entry[]");
    is("new Shop.Grid[,][]", "new Grid[,][]");
    is("new int?[]", "new int?[]");
    is("new Shop.Web.Beds.<Items>d__0[]", "new Beds.Items (state machine)[]");
    is("new Box<Shop.<Load>d__3, int>", "new Box<Load, int>");
    is("new AsyncStateMachineBox<int, Shop.Web.Beds.<Free>d__0>", "new Beds.Free (async)");
}

#[test]
fn with_less_room_a_label_loses_what_matters_least() {
    let both = |label: &str| (brief(label), method(&brief(label)));
    let is = |label: &str, brief: &str, method: &str| assert_eq!(both(label), (brief.to_owned(), method.to_owned()));
    is("Dictionary<string, Item<int>>.FindValue", "Dictionary.FindValue", "FindValue");
    is("Program.Main λ2", "Program.Main λ2", "Main λ2");
    is("Truth.BurnAsync (async)", "Truth.BurnAsync (async)", "BurnAsync (async)");
    is("Order.this[] (get)", "Order.this[] (get)", "this[] (get)");
    is("new List<int>", "new List", "new List");
    is("new List<Line>[]", "new List[]", "new List[]");
    is("new Line[]", "new Line[]", "new Line[]");
    is("Main", "Main", "Main");
    is("[native code]", "[native code]", "[native code]");
    is("<unknown function 0x7f12: E_FAIL>", "<unknown function 0x7f12: E_FAIL>", "<unknown function 0x7f12: E_FAIL>");
}

#[test]
fn lambdas_are_of_their_method() {
    is("Shop.Program+<>c.<Main>b__0_0(int32)", "Program.Main λ");
    is("Shop.Program.<>c.<Main>b__0_1(int32)", "Program.Main λ2");
    is("Shop.Program+<>c__DisplayClass3_0.<Main>b__1(string)", "Program.Main λ2");
    is("Shop.Program+<>c__DisplayClass3_0+<>c__DisplayClass4_0.<Main>b__0()", "Program.Main λ");
    is("Shop.Cache+<>c__DisplayClass2_0<System.__Canon>.<Get>b__0()", "Cache.Get λ");
    is("Shop.Cache+<>c__2<System.__Canon>.<Get>b__2_0(int32)", "Cache.Get λ");
    is("Program+<>c.<<Main>$>b__0_2(string)", "Program.Main λ3");
    is("Shop.Program+<>c..ctor()", "Program.closure");
    is("Shop.Query+<>c.<.ctor>b__1_0(int32)", "Query..ctor λ");
    is("Shop.Program.<Main>b__0_0(int32)", "Program.Main λ");
}

#[test]
fn lambdas_of_mcs_are_of_their_method() {
    is("Shop.Program.<Main>m__0(int32)", "Program.Main λ");
    is("Shop.Program.<Main>m__2(int32)", "Program.Main λ3");
    is("Shop.Program+<Main>c__AnonStorey0.<>m__0(int32)", "Program.Main λ");
    is("Shop.Program+<Main>c__AnonStorey0.<>m__1(int32)", "Program.Main λ2");
    is("Shop.Program+<Main>c__AnonStorey0..ctor()", "Program.closure");
}

#[test]
fn local_functions_are_within_their_method() {
    is("Shop.Program.<Main>g__Local|0_0(int32)", "Program.Main.Local");
    is("Program.<<Main>$>g__Burn|0_3(int32)", "Program.Main.Burn");
    is("Shop.Program+<>c__DisplayClass3_0.<Main>g__Deep|1()", "Program.Main.Deep");
    is("Shop.Program.<Main>g__Of|0_0<int32>(!!0)", "Program.Main.Of<int>");
    is("Shop.Program.<Main>g__Outer|0_0.<Main>g__Inner|0_1()", "Program.Main.Inner");
    is("Interop+Sys.<Send>g____PInvoke|60_0(native int)", "Sys.Send");
    is("Program+<>c.<<<Main>$>g__Serve|0_0>b__0_4()", "Program.Main.Serve λ5");
}

#[test]
fn state_machines_are_their_method() {
    is("Shop.Truth+<BurnAsync40>d__5.MoveNext()", "Truth.BurnAsync40 (async)");
    is("Shop.Truth.<BurnAsync40>d__5.MoveNext()", "Truth.BurnAsync40 (async)");
    is("Shop.Truth+<Burn>d__5<int32>.MoveNext()", "Truth.Burn<int> (async)");
    is("Shop.Truth+<Burn>d__5`1.MoveNext()", "Truth.Burn (async)");
    is("Program+<<Main>$>d__0.MoveNext()", "Program.Main (async)");
    is("Program+<<<Main>$>g__Load|0_0>d.MoveNext()", "Program.Main.Load (async)");
    is("Program+<>c+<<Main>b__0_1>d.MoveNext()", "Program.Main λ2 (async)");
    is("Program+<>c__DisplayClass0_0+<<<Main>$>b__3>d.MoveNext()", "Program.Main λ4 (async)");
    is("Shop.Store+<Shop-IStore-Load>d__1.MoveNext()", "Store.Shop-IStore-Load (async)");
    is("Shop.Truth+<Burn>c__async0.MoveNext()", "Truth.Burn (async)");
    is("Shop.Truth+<Burn>d__5.SetStateMachine(System.IAsyncStateMachine)", "Truth.Burn.SetStateMachine (async)");
}

#[test]
fn what_an_operation_begins_with_is_async() {
    assert_eq!(Machine::of("Throws", Some("[started by]")), Machine::Async);
    assert_eq!(Machine::of("Items", Some("Shop.Truth.Sum()")), Machine::Iterator);
}

#[test]
fn iterators_are_their_method() {
    let iterator = |name| managed(name, Machine::Iterator);
    assert_eq!(iterator("Shop.Truth+<Items>d__3.MoveNext()"), "Truth.Items (iterator)");
    assert_eq!(iterator("Shop.Truth+<Items>c__Iterator0.MoveNext()"), "Truth.Items (iterator)");
    assert_eq!(iterator("Shop.Truth+<Items>d__3.<>m__Finally1()"), "Truth.Items finally (iterator)");
    assert_eq!(iterator("Shop.Truth+<System.Collections.IEnumerable.GetEnumerator>d__3.MoveNext()"), {
        "Truth.GetEnumerator (iterator)"
    });
    assert_eq!(managed("Shop.Truth+<Items>d__3.MoveNext()", Machine::AsyncIterator), "Truth.Items (async iterator)");
    is("Shop.Truth+<Items>d__3.System.Collections.IEnumerator.Reset()", "Truth.Items.Reset (iterator)");
    assert_eq!(state_machine("Shop.Truth+<Items>d__3.MoveNext()").as_deref(), Some("Items"));
    assert_eq!(state_machine("Shop.Truth+Enumerator.MoveNext()"), None);
    assert_eq!(state_machine("Shop.Truth+<Items>d__3.Dispose()"), None);
}

#[test]
fn other_generated_names_are_said_plainly() {
    is("Program.<Main>$(string[])", "Program.Main");
    is("Program.<Main>(string[])", "Program.Main");
    is("Shop.Item.<Clone>$()", "Item.Clone");
    is("Shop.Truth.<Burn>n__0()", "Truth.base.Burn");
    is("<>f__AnonymousType0<string, int32>.get_Name()", "anonymous type.Name (get)");
    is("Shop.<Program>F0123456789ABCDEF__Hidden.Run()", "Hidden.Run");
    is("<dynamic method lambda_method12>", "lambda_method12 (dynamic)");
    is("<stub IL_STUB_PInvoke>", "IL_STUB_PInvoke (stub)");
    is("<unknown function 0x7f12: E_FAIL>", "<unknown function 0x7f12: E_FAIL>");
    is("[native code]", "[native code]");
}

#[test]
fn vb_and_fsharp_are_understood() {
    is("Shop.Module1+VB$StateMachine_5_BurnAsync.MoveNext()", "Module1.BurnAsync (async)");
    is("Shop.Module1+_Closure$__1-0._Lambda$__0()", "Module1.λ");
    is("Shop.Module1+_Closure$__._Lambda$__1-1(int32)", "Module1.λ2");
    is("Shop.Program+main@12.Invoke(int32)", "Program.main λ");
    is("Shop.Program+clo@12-3.Invoke(int32)", "Program.clo λ");
}

#[test]
fn whatever_the_name_there_is_a_label() {
    for name in [
        "", " ", ".", "..", "<", ">", "<>", "<<", "<>>", "(", "()", "<a", "<a>", "<a>b", "<a>b__", "+", "a.", "@", "a@",
    ] {
        let label = managed(name, Machine::Async);
        assert!(name.trim().is_empty() || !label.trim().is_empty(), "{name:?} has no label");
        let _ = method(&brief(&label));
    }
    assert_eq!(native("gc_heap::mark_object(unsigned char*)"), "gc_heap::mark_object");
    assert_eq!(native("operator()(int)"), "operator");
    assert_eq!(native("(anonymous)"), "(anonymous)");
    assert_eq!(native("libcoreclr.so (no symbols)"), "libcoreclr.so (no symbols)");
    assert_eq!(native("std::vector<int (*)(int)>::at(int) const"), "std::vector<int (*)(int)>::at");
}
