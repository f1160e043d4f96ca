//! Classes that a compiler has made around a method, by what the developer wrote: for reports about the heap.

use super::full::{full_type_name, may_be_generated, of_type};
use super::{fsharp_closure, generated, is_closure, machine_source, method_name, outside_brackets, split};

/// How the names of the classes end in which the runtime keeps the state of an async method that waits: those of .NET
/// 11 are others while somebody listens to its async operations.
const BOX: &str = "StateMachineBox";
/// Where they are. Events name a nested class without those around it.
const BUILDERS: &str = "System.Runtime.CompilerServices.";

/// A class in the words of the source, with its namespace: `Shop.RunAsync (async)` for the box of a state machine,
/// `Shop.Load (closure)` for the variables that lambdas of a method share, `Shop.Items (iterator)`.
///
/// `method` is a method of the class that tells what it was made for, such as `<Load>b__0`; empty if none is known. The
/// class of a state machine, which builds for debugging have beside the box, is `Shop.RunAsync (async state machine)`.
///
/// ```
/// # use corprof_export::class_in_source;
/// assert_eq!(class_in_source("Shop.<>c__DisplayClass3_0", "<Load>b__0"), "Shop.Load (closure)");
/// assert_eq!(class_in_source("Shop.Order[]", ""), "Shop.Order[]");
/// ```
#[must_use]
pub fn class_in_source(name: &str, method: &str) -> String {
    if !may_be_generated(name) {
        return name.to_owned();
    }
    let bare = name.trim_end_matches(['[', ']', ',', '*']);
    let suffix = name.get(bare.len()..).unwrap_or_default();
    let (path, function) = split(bare);
    let Some((last, outer)) = path.split_last().filter(|_| function.is_empty()) else { return of_type(name) };
    if let Some(source) = boxed_machine(bare, last) {
        return format!("{source} (async){suffix}");
    }
    let holder: Vec<String> = outer.iter().filter_map(|component| full_type_name(component)).collect();
    let holder = holder.join(".");
    let within = |inner: String| if holder.is_empty() { inner } else { format!("{holder}.{inner}") };
    let shown = if let Some(source) = machine_source(last) {
        format!("{} ({})", within(source), machine_kind(method))
    } else if let Some((function, _)) = fsharp_closure(last) {
        format!("{} (closure)", within(function.to_owned()))
    } else if is_closure(last) {
        // mcs names the class by the method, others name its methods by it.
        let of_class = generated(last).map(|name| name.source).filter(|source| !source.is_empty());
        let source = of_class.or_else(|| generated(method).map(|name| name.source)).filter(|source| !source.is_empty());
        match source {
            Some(source) => format!("{} (closure)", within(method_name(source))),
            // Nothing tells of what.
            None if holder.is_empty() => return name.to_owned(),
            None => format!("{holder} (closure)"),
        }
    } else {
        return of_type(name);
    };
    format!("{shown}{suffix}")
}

/// The method whose state a box has: its last type argument is the state machine.
fn boxed_machine(name: &str, last: &str) -> Option<String> {
    let (class, arguments) = last.split_once('<')?;
    let is_alone = name.len() == last.len();
    if !class.ends_with(BOX) || !(is_alone || name.starts_with(BUILDERS)) {
        return None;
    }
    let machine = arguments.strip_suffix('>')?;
    let comma = outside_brackets(machine).filter(|(_, c)| *c == ',').last();
    let machine = machine.get(comma.map_or(0, |(at, _)| at + 1)..)?.trim();
    let (path, _) = split(machine);
    let (last, outer) = path.split_last()?;
    let mut shown: Vec<String> = outer.iter().filter_map(|component| full_type_name(component)).collect();
    shown.push(machine_source(last)?);
    Some(shown.join("."))
}

/// The construct of the source behind a state machine, by the name of one of its methods.
fn machine_kind(method: &str) -> &'static str {
    match split(method).0.last() {
        Some(&"MoveNextAsync") => "async iterator",
        Some(&"SetStateMachine") => "async state machine",
        Some(&"GetEnumerator") => "iterator",
        _ => "state machine",
    }
}

/// A static field with its class, in the words of the source: `Shop.Cache.Items` for what keeps the value of a
/// property.
///
/// ```
/// # use corprof_export::field_in_source;
/// assert_eq!(field_in_source("Shop.Cache.<Items>k__BackingField"), "Shop.Cache.Items");
/// assert_eq!(field_in_source("Shop.Cache.<>c.<>9__3_0"), "Shop.Cache λ (kept delegate)");
/// ```
#[must_use]
pub fn field_in_source(name: &str) -> String {
    let (path, function) = split(name);
    let Some((field, types)) = path.split_last().filter(|_| function.is_empty()) else { return name.to_owned() };
    let Some(made) = generated(field) else { return name.to_owned() };
    let holder: Vec<String> = types.iter().filter_map(|component| full_type_name(component)).collect();
    let holder = holder.join(".");
    let within = |inner: &str| if holder.is_empty() { inner.to_owned() } else { format!("{holder}.{inner}") };
    match (made.source, made.rest) {
        (source, "k__BackingField") if !source.is_empty() => within(source),
        // The compiler makes the delegate of a lambda without variables once, and the closure of all of them.
        ("", "9") => format!("{holder} (closure)").trim_start().to_owned(),
        ("", rest) if rest.starts_with("9__") => format!("{holder} λ (kept delegate)").trim_start().to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(name: &str, method: &str, expected: &str) {
        assert_eq!(class_in_source(name, method), expected, "{name} {method}");
    }

    #[test]
    fn other_classes_stay() {
        for name in [
            "Shop.Order",
            "byte[]",
            "System.Collections.Generic.Dictionary<int, Shop.Order[]>.Entry[]",
            "(class 0x7)",
            "",
        ] {
            is(name, "", name);
        }
    }

    #[test]
    fn closures_are_of_their_method() {
        is("Shop.Web.<>c__DisplayClass3_0", "<Load>b__0", "Shop.Web.Load (closure)");
        is("Shop.<>c__DisplayClass3_0[]", "<Load>b__0", "Shop.Load (closure)[]");
        is("Program.<>c__DisplayClass0_0", "<<Main>$>b__3", "Program.Main (closure)");
        is("Program.<>c__DisplayClass0_0", "<<<Main>$>g__Serve|0_0>b__4", "Program.Main.Serve (closure)");
        is("Shop.<>c__DisplayClass3_0", "<Load>g__Deep|1", "Shop.Load (closure)");
        is("Shop.Cache<int>.<>c__DisplayClass2_0<string>", "<Get>b__0", "Shop.Cache<int>.Get (closure)");
        is("Shop.<>c__DisplayClass3_0", "", "Shop (closure)");
        is("Shop.<>c", "", "Shop (closure)");
        is("Shop.<Main>c__AnonStorey0", "<>m__0", "Shop.Main (closure)");
        is("Shop.Module1._Closure$__1-0", "_Lambda$__0", "Shop.Module1 (closure)");
        is("Shop.Program.main@12", "", "Shop.Program.main (closure)");
        is("<>c__DisplayClass3_0", "", "<>c__DisplayClass3_0");
        is("<>c__DisplayClass3_0", "<Load>b__0", "Load (closure)");
    }

    #[test]
    fn state_machines_are_their_method() {
        let of_task = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<System.Threading.Tasks.VoidTaskResult>";
        is(&format!("{of_task}.AsyncStateMachineBox<Shop.<RunAsync>d__5>"), "", "Shop.RunAsync (async)");
        is(
            &format!("{of_task}.DebugFinalizableAsyncStateMachineBox<Shop.<>c__DisplayClass2_0.<<Free>b__0>d>"),
            "",
            "Shop.Free λ (async)",
        );
        let pooled = "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder<int>";
        is(
            &format!("{pooled}.StateMachineBox<Shop.Store<int, byte[]>.<Get>d__1<string>>"),
            "",
            "Shop.Store<int, byte[]>.Get<string> (async)",
        );
        is("AsyncProfilerAsyncStateMachineBox<string, Clinic.Beds.<Free>d__0>", "", "Clinic.Beds.Free (async)");
        is("Shop.StateMachineBox<Shop.<Free>d__0>", "", "Shop.StateMachineBox<Shop.Free>");
        is("Shop.<RunAsync>d__5", "SetStateMachine", "Shop.RunAsync (async state machine)");
        is(
            "Shop.<Items>d__5",
            "System.Collections.Generic.IEnumerable<System.Int32>.GetEnumerator",
            "Shop.Items (iterator)",
        );
        is(
            "Shop.<Items>d__5",
            "System.Collections.Generic.IAsyncEnumerator<System.Int32>.MoveNextAsync",
            "Shop.Items (async iterator)",
        );
        is("Shop.<Items>d__5", "", "Shop.Items (state machine)");
        is("Shop.Module1.VB$StateMachine_5_Burn", "SetStateMachine", "Shop.Module1.Burn (async state machine)");
    }

    #[test]
    fn arguments_are_spelled_as_those_of_methods() {
        is("System.Box<Shop.<Load>d__3, int>", "", "System.Box<Shop.Load, int>");
        is("System.Func<Shop.<>c, <>f__AnonymousType0<int>>[]", "", "System.Func<Shop.closure, anonymous type>[]");
        is("<>f__AnonymousType0<int>", "", "anonymous type");
    }

    #[test]
    fn fields_are_those_of_the_source() {
        for (name, expected) in [
            ("Shop.Cache.items", "Shop.Cache.items"),
            ("<Instances>k__BackingField", "Instances"),
            ("Shop.Program.<>c.<>9", "Shop.Program (closure)"),
            ("Shop.<>o__3.<>p__0", "Shop.<>o__3.<>p__0"),
            ("", ""),
        ] {
            assert_eq!(field_in_source(name), expected);
        }
    }

    #[test]
    fn odd_names_do_no_harm() {
        for name in [
            "<",
            "<>",
            ".<",
            "a.<b",
            "<a>d",
            "System.Runtime.CompilerServices.X.AsyncStateMachineBox<",
            "λ.<é>d__1",
            "<>c[",
            "a@",
        ] {
            let _ = (class_in_source(name, name), field_in_source(name));
        }
    }
}
