//! Labels, the text on a box: the last part of a method's name, in C#, with compiler-generated names turned back into
//! those of the source.
//!
//! | name | label |
//! |---|---|
//! | `Shop.Web.Catalogue.Totals(int32)` | `Catalogue.Totals` |
//! | `Shop.Truth+<BurnAsync>d__5.MoveNext()` | `Truth.BurnAsync (async)` |
//! | `Shop.Program+<>c__DisplayClass3_0.<Main>b__1(string)` | `Program.Main λ2` |
//! | `Shop.Program.<Main>g__Local\|0_0(int32)` | `Program.Main.Local` |
//!
//! The spellings are those of Roslyn (C# and VB), Mono's mcs and F#.

mod class;
mod full;
mod made;
#[cfg(test)]
mod tests;

pub use class::{class_in_source, field_in_source};
pub(crate) use full::full;
pub use made::{Relative, telling_method};

/// The name of the frame between the methods that await what runs, and those that have started that without awaiting
/// it. A state machine below it is that of an async method.
pub const STARTED_BY: &str = "[started by]";

/// Behind the name of a method that has no frame of its own.
const INLINED: &str = " (inlined)";

/// The name of the frame of a method that the compiler has put into its caller.
///
/// ```
/// # use corprof_export::{Frame, as_inlined};
/// let name = as_inlined("Shop.Orders.Save(int)");
/// assert_eq!(name, "Shop.Orders.Save(int) (inlined)");
/// assert_eq!(Frame::managed(&name).label(), "Orders.Save (inlined)");
/// ```
#[must_use]
pub fn as_inlined(name: &str) -> String {
    format!("{name}{INLINED}")
}

/// The source construct behind a state machine. Its callers show which one it is, its name does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    Async,
    Iterator,
    AsyncIterator,
    /// One of these: nothing tells which.
    Unknown,
}

impl Machine {
    /// The construct behind the state machine of the method `source`: builders, resumptions and the method itself call
    /// async methods; any code calls iterators.
    pub(crate) fn of(source: &str, caller: Option<&str>) -> Self {
        match caller {
            Some(name) if name.contains("AsyncIteratorMethodBuilder") => Self::AsyncIterator,
            Some(name) if name.starts_with("System.Runtime.CompilerServices.Async") => Self::Async,
            // Who awaits it is not known, but who started the operation.
            Some(STARTED_BY) => Self::Async,
            // What goes on with a method that has waited, where the builder's box was inlined.
            Some(name) if name.starts_with("System.Threading.") => Self::Async,
            Some(name) if name.contains("MethodBuilder") || name.contains("AsyncStateMachine") => Self::Async,
            // Where callers are those that await it. A loop of an async method calls an iterator as well, but rarely.
            Some(name) if state_machine(name).is_some() => Self::Async,
            Some(name) if name.contains(&format!(".{source}(")) => Self::Async,
            // Methods that the runtime suspends itself have names like others: what awaits is called so.
            Some(name) if ["Async(", "Async<", "Await"].iter().any(|part| name.contains(part)) => Self::Async,
            // No language but Visual Basic has iterators without a name.
            Some(_) if source.contains('λ') => Self::Async,
            Some(_) if !source.ends_with("Async") => Self::Iterator,
            _ => Self::Async,
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Async => " (async)",
            Self::Iterator => " (iterator)",
            Self::AsyncIterator => " (async iterator)",
            Self::Unknown => "",
        }
    }
}

/// The label of a managed method.
pub(crate) fn managed(name: &str, machine: Machine) -> String {
    if let Some(name) = name.strip_suffix(INLINED) {
        return as_inlined(&managed(name, machine));
    }
    for (kind, suffix) in [("<dynamic method ", " (dynamic)"), ("<stub ", " (stub)")] {
        if let Some(inner) = name.strip_prefix(kind).and_then(|rest| rest.strip_suffix('>')) {
            return format!("{inner}{suffix}");
        }
    }
    if name.starts_with('[') || name.starts_with("<unknown") {
        return name.to_owned();
    }
    // What is allocated is a type.
    if let Some(class) = name.strip_prefix("new ") {
        let spelled = class_in_source(class, "");
        let shown = without_namespace(&spelled).unwrap_or_else(|| short_class(class));
        return format!("new {shown}");
    }
    let (path, _) = split(name);
    let Some((method, types)) = path.split_last() else { return name.to_owned() };
    let label = of_path(types, method, machine);
    if label.is_empty() { name.to_owned() } else { label }
}

/// The label of a native function: its name without parameters.
pub(crate) fn native(name: &str) -> String {
    if name.ends_with(" (no symbols)") {
        return name.to_owned(); // of a library, and not of a function with parameters
    }
    let end = outside_brackets(name).find(|&(at, c)| c == '(' && at > 0).map_or(name.len(), |(at, _)| at);
    name.get(..end).unwrap_or(name).trim_end().to_owned()
}

/// A managed method with its namespace and parameters, in the words of the source: `Shop.Truth.BurnAsync (async)`,
/// `Shop.Program.Main λ2(string)`. `caller` is the method that has called it, by which an iterator is told from an
/// async method; without it, only a name that ends in `Async` tells.
///
/// ```
/// # use corprof_export::in_source;
/// assert_eq!(in_source("Shop.Truth.<BurnAsync>d__5.MoveNext()", None), "Shop.Truth.BurnAsync (async)");
/// assert_eq!(in_source("Shop.Orders.Save(int)", None), "Shop.Orders.Save(int)");
/// ```
#[must_use]
pub fn in_source(name: &str, caller: Option<&str>) -> String {
    let machine = match state_machine(name) {
        Some(source) if caller.is_none() && !source.ends_with("Async") => Machine::Unknown,
        Some(source) => Machine::of(&source, caller),
        None => Machine::Async,
    };
    full(name, machine)
}

/// The method that a state machine was made of, if the name is that of its `MoveNext`.
pub(crate) fn state_machine(name: &str) -> Option<String> {
    let (path, _) = split(name);
    let (method, types) = path.split_last()?;
    (*method == "MoveNext").then(|| machine_source(types.last()?)).flatten()
}

fn of_path(types: &[&str], method: &str, machine: Machine) -> String {
    let holder = outer_types(types).iter().rev().find_map(|component| type_name(component)).unwrap_or_default();
    within_holder(&holder, types, method, machine)
}

/// Where the innermost state machine is among the components.
fn machine_position(types: &[&str]) -> Option<usize> {
    types.iter().rposition(|component| machine_source(component).is_some())
}

/// The types around a method. After a state machine, there are the components of an interface that it implements
/// explicitly.
fn outer_types<'t>(types: &'t [&'t str]) -> &'t [&'t str] {
    machine_position(types).and_then(|position| types.get(..position)).unwrap_or(types)
}

/// The construct behind a state machine, if an interface that it implements explicitly tells.
fn of_interface(interface: &[&str]) -> Option<Machine> {
    let name = interface.last()?;
    let machine = if name.starts_with("IAsyncEnumer") { Machine::AsyncIterator } else { Machine::Iterator };
    ["IAsyncEnumer", "IEnumer"].iter().any(|prefix| name.starts_with(prefix)).then_some(machine)
}

/// The method in the type that holds it, `holder`.
fn within_holder(holder: &str, types: &[&str], method: &str, machine: Machine) -> String {
    let within = |inner: String| if holder.is_empty() { inner } else { format!("{holder}.{inner}") };
    let last = types.last().copied().unwrap_or_default();
    if let Some(position) = machine_position(types) {
        let machine = types.get(position + 1..).and_then(of_interface).unwrap_or(machine);
        let source = types.get(position).and_then(|component| machine_source(component)).unwrap_or_default();
        // An explicit implementation is the last word of `System.Collections.IEnumerator.Reset`.
        let part = match method {
            "MoveNext" => String::new(),
            _ if method.starts_with("<>m__Finally") || method.starts_with("<>__Finally") => " finally".to_owned(),
            _ => format!(".{}", accessor(method)),
        };
        return within(format!("{source}{part}{}", machine.suffix()));
    }
    if let Some((function, _)) = fsharp_closure(last) {
        return within(format!("{function} λ"));
    }
    match method {
        ".ctor" if is_closure(last) => within("closure".to_owned()),
        ".ctor" if holder.is_empty() => "new".to_owned(),
        ".ctor" => format!("new {holder}"),
        ".cctor" => format!("{holder} (static)").trim_start().to_owned(),
        _ if method.starts_with("<>m__") => {
            // mcs puts lambdas that capture into a class that is named by the method.
            let source = generated(last).map_or_else(String::new, |name| method_name(name.source));
            within(format!("{source} λ{}", ordinal(method)).trim_start().to_owned())
        }
        _ => within(method_name(method)),
    }
}

/// The parts of a generated name `<source>kind…`.
struct Generated<'a> {
    source: &'a str,
    /// The part after the bracket, without type arguments.
    rest: &'a str,
    arguments: &'a str,
}

fn generated(component: &str) -> Option<Generated<'_>> {
    let mut depth = 0;
    let close = component.char_indices().find_map(|(at, c)| {
        depth += match c {
            '<' => 1,
            '>' => -1,
            _ => 0,
        };
        (depth == 0).then_some(at)
    })?;
    if close == 0 {
        return None;
    }
    let source = component.get(1..close)?;
    let rest = component.get(close + 1..)?;
    let (rest, arguments) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
    Some(Generated { source, rest, arguments })
}

/// A method as it was written. Generated names nest: an async local function is `<<Main>g__Load|0_0>d`.
fn method_name(method: &str) -> String {
    let Some(name) = generated(method) else { return plain_method(method) };
    let source = name.source;
    let rest = name.rest;
    let arguments = short_arguments(name.arguments);
    if let Some(local) = rest.strip_prefix("g__") {
        let local = local.split('|').next().unwrap_or(local);
        // A generated `[LibraryImport]` stub calls the method itself.
        if local == "__PInvoke" {
            return method_name(source);
        }
        return format!("{}.{local}{arguments}", method_name(source));
    }
    if rest.starts_with("b__") || rest.starts_with("m__") {
        return format!("{} λ{}{arguments}", method_name(source), ordinal(rest)).trim_start().to_owned();
    }
    if rest.starts_with("n__") && !source.is_empty() {
        return format!("base.{}", method_name(source));
    }
    // `<Main>` calls an asynchronous `Main`, `<Main>$` contains the top-level statements; `<Clone>$` copies a record.
    if (rest.is_empty() || rest == "$") && !source.is_empty() {
        return method_name(source);
    }
    method.to_owned()
}

fn plain_method(method: &str) -> String {
    if method.starts_with("_Lambda$__") {
        return format!("λ{}", ordinal(method.get("_Lambda$".len()..).unwrap_or_default()));
    }
    if let Some((function, _)) = fsharp_closure(method) {
        return format!("{function} λ");
    }
    // An explicit implementation inside brackets has dots.
    let last = split(method).0.last().copied().unwrap_or(method);
    let (name, arguments) = last.split_at(last.find('<').filter(|&at| at > 0).unwrap_or(last.len()));
    format!("{}{}", accessor(without_arity(name)), short_arguments(arguments))
}

fn accessor(method: &str) -> String {
    let accessors = [("get_", "get"), ("set_", "set"), ("add_", "add"), ("remove_", "remove"), ("init_", "init")];
    let found = accessors.iter().find_map(|(prefix, word)| Some((method.strip_prefix(prefix)?, word)));
    match found {
        Some(("Item", word)) => format!("this[] ({word})"),
        Some((property, word)) if !property.is_empty() => format!("{property} ({word})"),
        _ => method.to_owned(),
    }
}

/// Which of a method's lambdas it is, from 2 on: the last number of `b__0_1` counts from 0.
fn ordinal(rest: &str) -> String {
    let digits = rest.rsplit(|c: char| !c.is_ascii_hexdigit()).next().unwrap_or_default();
    match digits.parse::<usize>() {
        Ok(number) if (1..10_000).contains(&number) => (number + 1).to_string(),
        _ => String::new(),
    }
}

/// The method that a state machine stands for: `<Name>d__5`, `<Name>d`, mcs's `<Name>c__async0` and
/// `<Name>c__Iterator0`, VB's `VB$StateMachine_5_Name`.
fn machine_source(component: &str) -> Option<String> {
    if let Some(rest) = component.strip_prefix("VB$StateMachine_") {
        return rest.split_once('_').map(|(_, name)| plain_method(name));
    }
    let name = generated(component)?;
    let is_machine = name.rest == "d"
        || name.rest.starts_with("d__")
        || name.rest.starts_with("c__async")
        || name.rest.starts_with("c__Iterator");
    let is_machine = is_machine && !name.source.is_empty();
    is_machine.then(|| format!("{}{}", method_name(name.source), short_arguments(name.arguments)))
}

/// A class that holds the variables of lambdas.
fn is_closure(component: &str) -> bool {
    component.starts_with("_Closure$__")
        || generated(component).is_some_and(|name| name.rest.starts_with("c__") || name.rest == "c")
}

/// F#'s closures are classes `function@line-number`.
fn fsharp_closure(component: &str) -> Option<(&str, &str)> {
    let (function, line) = component.split_once('@')?;
    (!function.is_empty() && line.starts_with(|c: char| c.is_ascii_digit())).then_some((function, line))
}

/// A type as it was written; none for one that a compiler has made around a method.
fn type_name(component: &str) -> Option<String> {
    if let Some(name) = generated(component) {
        if name.rest.starts_with("f__AnonymousType") {
            return Some("anonymous type".to_owned());
        }
        // A type of one file: `<Program>F0123…__Name`.
        let in_file = name.rest.strip_prefix('F').and_then(|rest| rest.split_once("__"));
        return in_file.map(|(_, name)| name.to_owned());
    }
    if component.is_empty() || component.starts_with(['_', 'V']) && is_of_vb(component) {
        return None;
    }
    if fsharp_closure(component).is_some() {
        return None;
    }
    let (name, arguments) = component.split_at(component.find('<').unwrap_or(component.len()));
    Some(format!("{}{}", without_arity(name), short_arguments(arguments)))
}

fn is_of_vb(component: &str) -> bool {
    component.starts_with("_Closure$__") || component.starts_with("VB$")
}

fn without_arity(name: &str) -> &str {
    match name.rsplit_once('`') {
        Some((name, arity)) if !arity.is_empty() && arity.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => name,
    }
}

/// `<System.String, Shop.Item[]>` as `<string, Item[]>`.
fn short_arguments(arguments: &str) -> String {
    let Some((inner, rest)) = arguments.strip_prefix('<').and_then(|rest| rest.rsplit_once('>')) else {
        return arguments.to_owned();
    };
    let mut start = 0;
    let mut square = 0;
    let mut short = Vec::new();
    for (at, c) in outside_brackets(inner) {
        match c {
            '[' => square += 1,
            ']' => square -= 1,
            // The commas of `int[,]` are its own.
            ',' if square == 0 => {
                short.push(short_type(inner.get(start..at).unwrap_or_default()));
                start = at + 1;
            }
            _ => {}
        }
    }
    short.push(short_type(inner.get(start..).unwrap_or_default()));
    format!("<{}>{rest}", short.join(", "))
}

fn short_type(name: &str) -> String {
    let name = name.trim();
    if name == "native int" || name == "native uint" {
        return name.replace("native int", "nint").replace("native uint", "nuint");
    }
    let end = name.rfind(|c: char| !matches!(c, '[' | ']' | '*' | '&' | '?' | ',')).map_or(0, |at| at + 1);
    // The last character may be longer than one byte.
    let end = (end..=name.len()).find(|&at| name.is_char_boundary(at)).unwrap_or(name.len());
    let (name, array) = name.split_at(end);
    let path = split(name).0;
    let Some(last) = path.last() else { return format!("{name}{array}") };
    let short = match generated(last) {
        Some(_) => machine_source(last).or_else(|| type_name(last)).unwrap_or_else(|| "closure".to_owned()),
        None => {
            let (name, arguments) = last.split_at(last.find('<').unwrap_or(last.len()));
            format!("{}{}", in_csharp(without_arity(name)), short_arguments(arguments))
        }
    };
    format!("{short}{array}")
}

/// A class that belongs to a method, `Shop.Beds.Free (async)`, without its namespace; none for other classes.
fn without_namespace(class: &str) -> Option<String> {
    let (path, construct) = split(class);
    let start = path.len().saturating_sub(2);
    (!construct.is_empty()).then(|| format!("{}{construct}", path.get(start..).unwrap_or_default().join(".")))
}

/// A type without its namespaces, but with the generic types around it.
fn short_class(name: &str) -> String {
    let mut start = 0;
    for (at, c) in outside_brackets(name) {
        match c {
            // A namespace has no type arguments.
            '.' | '+' | '/' if name.get(start..at).is_some_and(|part| !part.contains('<')) => start = at + 1,
            _ => {}
        }
    }
    let class = name.get(start..).unwrap_or(name);
    let (outer, inner) = class.split_at(class.rfind('>').map_or(0, |at| at + 1));
    if outer.is_empty() || !inner.starts_with(['.', '+', '/']) {
        return short_type(name);
    }
    format!("{}{inner}", short_type(outer))
}

/// A label without type arguments, for when there is less room.
pub(crate) fn brief(label: &str) -> String {
    if label.starts_with('<') {
        return label.to_owned();
    }
    outside_brackets(label).map(|(_, c)| c).collect()
}

/// The method of a brief label, for narrow boxes: of `Program.Main λ2` the part after the type.
pub(crate) fn method(brief: &str) -> String {
    let end = brief.find([' ', '(']).unwrap_or(brief.len());
    let dot = brief.get(..end).unwrap_or_default().rfind('.').filter(|&at| at > 0 && at + 1 < end);
    let method = dot.and_then(|at| brief.get(at + 1..)).unwrap_or(brief);
    method.to_owned()
}

/// Keywords of C# for words of IL. Instantiations over references share their code, which names none of them.
fn in_csharp(word: &str) -> &str {
    match word {
        "int8" | "SByte" => "sbyte",
        "uint8" | "Byte" => "byte",
        "int16" | "Int16" => "short",
        "uint16" | "UInt16" => "ushort",
        "int32" | "Int32" => "int",
        "uint32" | "UInt32" => "uint",
        "int64" | "Int64" => "long",
        "uint64" | "UInt64" => "ulong",
        "float32" | "Single" => "float",
        "float64" | "Double" => "double",
        "Boolean" => "bool",
        "Char" => "char",
        "String" => "string",
        "Object" => "object",
        "__Canon" => "…",
        word => word,
    }
}

/// The components of a name, and its parameters. A method's name may begin with a dot, and brackets may hold any.
fn split(name: &str) -> (Vec<&str>, &str) {
    let mut path = Vec::new();
    let mut start = 0;
    let mut end = name.len();
    for (at, c) in outside_brackets(name) {
        match c {
            '(' => {
                end = at;
                break;
            }
            // The second dot of `Type..ctor` is part of the name.
            '.' | '+' | '/' if at > start => {
                path.push(name.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < end {
        path.push(name.get(start..end).unwrap_or_default());
    }
    (path, name.get(end..).unwrap_or_default())
}

/// The characters that are in no angle brackets.
fn outside_brackets(name: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut depth = 0usize;
    name.char_indices().filter(move |&(_, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    })
}
