//! Full names in the words of the source, for files of data and for text: namespace and parameters stay, and only what
//! a compiler has made of a name is turned back.

use super::{
    INLINED, Machine, as_inlined, class_in_source, fsharp_closure, generated, is_closure, is_of_vb, machine_position,
    machine_source, outer_types, outside_brackets, split, type_name, within_holder,
};

/// A managed method with its namespace and parameters.
pub(crate) fn full(name: &str, machine: Machine) -> String {
    if let Some(name) = name.strip_suffix(INLINED) {
        return as_inlined(&full(name, machine));
    }
    for (kind, suffix) in [("<dynamic method ", " (dynamic)"), ("<stub ", " (stub)")] {
        if let Some(inner) = name.strip_prefix(kind).and_then(|rest| rest.strip_suffix('>')) {
            return format!("{inner}{suffix}");
        }
    }
    // What is allocated is a class.
    if let Some(class) = name.strip_prefix("new ") {
        return format!("new {}", class_in_source(class, ""));
    }
    let is_no_method = name.starts_with('[') || name.starts_with("<unknown");
    if is_no_method || !may_be_generated(name) {
        return name.to_owned();
    }
    let (path, parameters) = split(name);
    let Some((method, types)) = path.split_last() else { return name.to_owned() };
    let holder: Vec<String> = outer_types(types).iter().filter_map(|component| full_type_name(component)).collect();
    let holder = holder.join(".");
    let shown = match path.iter().any(|component| is_generated(component)) {
        true => within_holder(&holder, types, method, machine),
        false if holder.is_empty() => with_arguments(method),
        false => format!("{holder}.{}", with_arguments(method)),
    };
    if shown.is_empty() {
        return name.to_owned();
    }
    // Those of a state machine's methods are not those of the method in the source.
    let parameters = if machine_position(types).is_some() { String::new() } else { of_types(parameters) };
    format!("{shown}{parameters}")
}

/// Whether there may be a part that a compiler has made: most names have none, and stay as they are.
pub(super) fn may_be_generated(name: &str) -> bool {
    let starts = ["<>", ".<", "+<", "/<", "<<", "(<", " <", "@", "$"];
    name.starts_with('<') || starts.iter().any(|start| name.contains(start))
}

fn is_generated(component: &str) -> bool {
    generated(component).is_some()
        || fsharp_closure(component).is_some()
        || is_of_vb(component)
        || component.starts_with("_Lambda$__")
}

/// A type as it was written, with the full names of its arguments; none for one that a compiler has made around a
/// method.
pub(super) fn full_type_name(component: &str) -> Option<String> {
    if is_generated(component) { type_name(component) } else { Some(with_arguments(component)) }
}

/// A component of a name, with its type arguments in the words of the source.
fn with_arguments(component: &str) -> String {
    let Some(at) = component.find('<').filter(|at| *at > 0) else { return component.to_owned() };
    let (name, arguments) = component.split_at(at);
    format!("{name}{}", of_types(arguments))
}

/// A list of types in brackets, `<A, B>` or `(A, B)`, and what follows it.
fn of_types(list: &str) -> String {
    let open = list.chars().next().filter(|open| matches!(open, '<' | '('));
    let Some(open) = open.filter(|_| may_be_generated(list)) else { return list.to_owned() };
    let close = if open == '<' { '>' } else { ')' };
    let Some((inner, rest)) = list.get(1..).and_then(|inner| inner.rsplit_once(close)) else { return list.to_owned() };
    let mut types = Vec::new();
    let mut start = 0;
    let mut depth = 0;
    for (at, c) in outside_brackets(inner) {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            // The commas of `int[,]` are its own.
            ',' if depth == 0 => {
                types.push(of_type(inner.get(start..at).unwrap_or_default()));
                start = at + 1;
            }
            _ => {}
        }
    }
    types.push(of_type(inner.get(start..).unwrap_or_default()));
    format!("{open}{}{close}{rest}", types.join(", "))
}

pub(super) fn of_type(text: &str) -> String {
    let text = text.trim();
    if !may_be_generated(text) {
        return text.to_owned();
    }
    let words = ["ref ", "in ", "out "];
    let word = words.into_iter().find(|word| text.starts_with(word)).unwrap_or_default();
    let name = text.get(word.len()..).unwrap_or_default();
    let bare = name.trim_end_matches(['[', ']', '*', '&', '?', ',']);
    let suffix = name.get(bare.len()..).unwrap_or_default();
    let (path, function) = split(bare);
    let Some((last, outer)) = path.split_last() else { return text.to_owned() };
    let mut shown: Vec<String> = outer.iter().filter_map(|component| full_type_name(component)).collect();
    shown.push(match machine_source(last) {
        Some(source) => source,
        None if is_closure(last) => "closure".to_owned(),
        None => full_type_name(last).unwrap_or_else(|| (*last).to_owned()),
    });
    format!("{word}{}{function}{suffix}", shown.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(name: &str, expected: &str) {
        assert_eq!(full(name, Machine::Async), expected, "{name}");
    }

    #[test]
    fn a_name_that_no_compiler_has_made_stays() {
        for name in [
            "Shop.Web.Catalogue.Totals(int, System.Collections.Generic.List<Shop.Item[,]>)",
            "Shop.Order..ctor(ref Shop.Order)",
            "Shop.Order.get_Item(int)",
            "[native code]",
            "<unknown function 0x7f12: E_FAIL>",
            "new Shop.Line[]",
            "A.B(method void *(int32))",
            "",
        ] {
            is(name, name);
        }
    }

    #[test]
    fn what_a_compiler_has_made_is_what_was_written() {
        is("Shop.Truth.<BurnAsync>d__5.MoveNext()", "Shop.Truth.BurnAsync (async)");
        is("Shop.Web.Truth+<Burn>d__5<int32>.MoveNext()", "Shop.Web.Truth.Burn<int> (async)");
        is("Program+<<Main>$>d__0.MoveNext()", "Program.Main (async)");
        is("Clinic.Beds.<>c__DisplayClass2_0.<<Blocking>b__0>d.MoveNext()", "Clinic.Beds.Blocking λ (async)");
        is("Shop.Program.<>c.<Main>b__0_1(string, Shop.Item)", "Shop.Program.Main λ2(string, Shop.Item)");
        is("Shop.Program.<Main>g__Local|0_0(int)", "Shop.Program.Main.Local(int)");
        is("Shop.Cache<Shop.Item>.<>c__DisplayClass2_0.<Get>b__0()", "Shop.Cache<Shop.Item>.Get λ()");
        is("Shop.Program+main@12.Invoke(int32)", "Shop.Program.main λ(int32)");
        is("Shop.Module1+VB$StateMachine_5_BurnAsync.MoveNext()", "Shop.Module1.BurnAsync (async)");
        is("<dynamic method lambda_method7>", "lambda_method7 (dynamic)");
        is("<stub IL_STUB_AsyncResume>", "IL_STUB_AsyncResume (stub)");
        assert_eq!(full("Shop.Api.<Items>d__2.MoveNext()", Machine::Iterator), "Shop.Api.Items (iterator)");
        is(
            "Shop.Api.<Items>d__2.System.Collections.Generic.IAsyncEnumerator<System.Int32>.MoveNextAsync()",
            "Shop.Api.Items.MoveNextAsync (async iterator)",
        );
    }

    #[test]
    fn so_is_what_stands_in_arguments_and_parameters() {
        is(
            "System.Box<Shop.Orders.<LoadAsync>d__3<System.__Canon>, int>.MoveNext(System.Threading.Thread)",
            "System.Box<Shop.Orders.LoadAsync<…>, int>.MoveNext(System.Threading.Thread)",
        );
        is(
            "System.Builder.Start<Clinic.Program.<Main>d__1>(ref Clinic.Program.<Main>d__1)",
            "System.Builder.Start<Clinic.Program.Main>(ref Clinic.Program.Main)",
        );
        is(
            "System.Linq.Enumerable.Select<int, <>f__AnonymousType0<int>[]>(N.Program.<>c, int[,])",
            "System.Linq.Enumerable.Select<int, anonymous type[]>(N.Program.closure, int[,])",
        );
    }

    #[test]
    fn odd_names_do_no_harm() {
        for name in ["<", ">", "<>", "<>.", ".<", "a.<b", "<<a>", "$", "@1", "a.<>(", "x(<", "λ.<é>d__1.MoveNext("] {
            let _ = full(name, Machine::Async);
        }
    }
}
