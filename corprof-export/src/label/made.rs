//! For what a compiler has made a class: the class of a closure has the number of its method in its name, and that name
//! in those of its methods.

use super::{generated, machine_source};

/// The most scopes of one method that are searched.
const MOST_SCOPES: u32 = 16;
/// The class of lambdas without variables, one for each class.
const WITHOUT_VARIABLES: &str = "<>c";
/// The class of a closure, followed by the number of the method, and by that of the scope in it.
const CLOSURE: &str = "<>c__DisplayClass";
/// What tells the state machines of async methods and of iterators apart, the most telling first.
const OF_MACHINES: [&str; 3] = ["MoveNextAsync", "SetStateMachine", "GetEnumerator"];

/// A class whose methods are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relative<'a> {
    /// The class itself.
    Itself,
    /// The class around it.
    Outer,
    /// A class of this name in the class around it.
    Sibling(&'a str),
}

/// The name of a method that tells for what a compiler has made a class, for
/// [`class_in_source`](crate::class_in_source): `<Load>b__0` of a closure in `Load`. None for other classes.
///
/// `class` is the name in the metadata, without the classes around it. `methods` returns the names of the methods of a
/// class, and nothing if there is no such class.
#[must_use]
pub fn telling_method(class: &str, methods: impl Fn(Relative<'_>) -> Vec<String>) -> Option<String> {
    if machine_source(class).is_some() {
        let methods = methods(Relative::Itself);
        let ending = |end: &&str| methods.iter().find(|method| method.ends_with(end)).cloned();
        return OF_MACHINES.iter().find_map(ending);
    }
    let scopes = class.strip_prefix(CLOSURE)?;
    let of_closure = methods(Relative::Itself).into_iter().find(|method| is_of_source(method));
    if of_closure.is_some() {
        return of_closure;
    }
    // A scope without lambdas has none of their methods: those of other scopes of its method tell, and lambdas that
    // need no closure. Generic methods have generic closures.
    let (method, scope) = scopes.split_once('_')?;
    let arity = scope.find('`').and_then(|at| scope.get(at..)).unwrap_or_default();
    for scope in 0..MOST_SCOPES {
        let sibling = format!("{CLOSURE}{method}_{scope}{arity}");
        let of_sibling = methods(Relative::Sibling(&sibling)).into_iter().find(|method| is_of_source(method));
        if of_sibling.is_some() {
            return of_sibling;
        }
    }
    let lambda = format!(">b__{method}_");
    let local = format!("|{method}_");
    let is_of_method = |name: &String| is_of_source(name) && (name.contains(&lambda) || name.contains(&local));
    let without = [Relative::Sibling(WITHOUT_VARIABLES), Relative::Outer];
    without.into_iter().find_map(|class| methods(class).into_iter().find(is_of_method))
}

/// Whether it is the method of a lambda or of a local function, whose name has that of the method around it.
fn is_of_source(method: &str) -> bool {
    let made = generated(method).filter(|name| !name.source.is_empty());
    made.is_some_and(|name| name.rest.starts_with("b__") || name.rest.starts_with("g__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telling(class: &str, all: &[(Relative<'_>, &[&str])]) -> Option<String> {
        telling_method(class, |wanted| {
            let found = all.iter().find(|(relative, _)| *relative == wanted).map_or(&[][..], |(_, methods)| *methods);
            found.iter().map(|&method| method.to_owned()).collect()
        })
    }

    #[test]
    fn a_closure_has_methods_of_its_method() {
        let own: &[&str] = &[".ctor", "<Load>b__0", "<Load>g__Deep|1"];
        assert_eq!(telling("<>c__DisplayClass3_0", &[(Relative::Itself, own)]).as_deref(), Some("<Load>b__0"));
        let own: &[&str] = &[".ctor"];
        let sibling: &[&str] = &[".ctor", "<Load>b__1"];
        let name = Relative::Sibling("<>c__DisplayClass3_1`1");
        let all = [(Relative::Itself, own), (name, sibling)];
        assert_eq!(telling("<>c__DisplayClass3_0`1", &all).as_deref(), Some("<Load>b__1"));
        assert_eq!(telling("<>c__DisplayClass3_0", &all), None);
        let outer: &[&str] = &["Load", "<Save>b__33_0", "<Load>b__3_0"];
        let all = [(Relative::Itself, own), (Relative::Outer, outer)];
        assert_eq!(telling("<>c__DisplayClass3_0", &all).as_deref(), Some("<Load>b__3_0"));
    }

    #[test]
    fn state_machines_have_methods_of_their_kind() {
        let of = |methods: &[&str]| telling("<Load>d__3", &[(Relative::Itself, methods)]);
        assert_eq!(of(&["MoveNext", "SetStateMachine"]).as_deref(), Some("SetStateMachine"));
        let both = ["MoveNext", "SetStateMachine", "N.IAsyncEnumerator<System.Int32>.MoveNextAsync"];
        assert_eq!(of(&both).as_deref(), Some("N.IAsyncEnumerator<System.Int32>.MoveNextAsync"));
        assert_eq!(of(&["MoveNext", "System.Collections.IEnumerable.GetEnumerator"]).as_deref(), {
            Some("System.Collections.IEnumerable.GetEnumerator")
        });
        assert_eq!(of(&["MoveNext"]), None);
    }

    #[test]
    fn other_classes_have_none() {
        let all: [(Relative<'_>, &[&str]); 1] = [(Relative::Itself, &["GetEnumerator", "<Load>b__0"])];
        for name in ["List`1", "<>c", "<>f__AnonymousType0`1", "<", ""] {
            assert_eq!(telling(name, &all), None, "{name}");
        }
    }
}
