//! From addresses to methods.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::HashMap;

/// Finds methods. A profiler asks the runtime by [`AskedMethods`], and who reads a trace fills a [`MethodTable`].
pub trait Methods {
    /// The method whose code has this address: the same number for all bodies of a method.
    fn method_at(&self, address: u64) -> Option<u64>;

    /// N, if the method is `System.Runtime.CompilerServices.AsyncProfiler+ContinuationWrapper.Continuation_Wrapper_N`:
    /// see [`MethodTable::wrapper_index`].
    fn wrapper_index(&self, method: u64) -> Option<u8>;

    /// Whether suspended state machines go on by this method: see [`MethodTable::resumes`]. Where this is not known,
    /// what a resumed method calls may be taken for the resumed one, if that has called it before.
    fn resumes(&self, _method: u64) -> bool {
        false
    }

    /// Whether the IL of a method says that it calls another one, which is async: of a state machine, its `MoveNext`
    /// stands for the method. Where this is not known, what a method has started before its first wait, and did not
    /// await yet, is not told to be started by it, but by what awaits it.
    fn calls(&self, _caller: u64, _called: u64) -> bool {
        false
    }
}

/// Methods of a trace, with their names.
#[derive(Debug, Clone, Default)]
pub struct MethodTable {
    /// By the beginning of the code.
    code: BTreeMap<u64, Code>,
    methods: HashMap<u64, Method>,
}

#[derive(Debug, Clone, Copy)]
struct Code {
    end: u64,
    method: u64,
}

#[derive(Debug, Clone)]
struct Method {
    name: Box<str>,
    wrapper: Option<u8>,
    resumes: bool,
}

/// What the names of the wrappers begin with, by the runtime and as C# has it.
const WRAPPER: [&str; 2] = [
    "System.Runtime.CompilerServices.AsyncProfiler+ContinuationWrapper.Continuation_Wrapper_",
    "System.Runtime.CompilerServices.AsyncProfiler.ContinuationWrapper.Continuation_Wrapper_",
];

/// The boxes of suspended state machines, each with the builder that makes it. .NET 11 makes the second while somebody
/// listens to async operations.
const BOXES: [(&str, &str); 3] = [
    ("AsyncTaskMethodBuilder", "AsyncStateMachineBox"),
    ("AsyncTaskMethodBuilder", "AsyncProfilerAsyncStateMachineBox"),
    ("PoolingAsyncValueTaskMethodBuilder", "StateMachineBox"),
];

/// The methods by which the thread pool and methods that have ended have a box go on. Each calls the first, or a
/// compiler has put that into it.
const RESUMING: [&str; 6] =
    ["MoveNext", "Execute", "ExecuteFromThreadPool", "ExecuteDirectly", "InstrumentedMoveNext", "MoveNextAsDispatcher"];

impl MethodTable {
    /// Is empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a body of a method. A later body at the same address replaces it: the runtime has reused the memory.
    ///
    /// `method` is the runtime's number of the method, `name` its full name, `Namespace.Type.Method`.
    pub fn add(&mut self, method: u64, start: u64, size: u32, name: &str) {
        self.code.insert(start, Code { end: start.saturating_add(size.into()), method });
        let is_known = self.methods.get(&method).is_some_and(|known| &*known.name == name);
        if !is_known {
            let (wrapper, resumes) = (Self::wrapper_index(name), Self::resumes(name));
            self.methods.insert(method, Method { name: name.into(), wrapper, resumes });
        }
    }

    /// The full name of a method.
    #[must_use]
    pub fn name(&self, method: u64) -> Option<&str> {
        self.methods.get(&method).map(|method| &*method.name)
    }

    /// The full name of the method whose code has this address.
    #[must_use]
    pub fn name_at(&self, address: u64) -> Option<&str> {
        self.name(self.method_at(address)?)
    }

    /// Whether a body of a method begins at this address.
    #[must_use]
    pub fn is_start(&self, address: u64) -> bool {
        self.code.contains_key(&address)
    }

    /// N, if this is the full name of `Continuation_Wrapper_N`, with or without its parameters: one of the methods by
    /// which the runtime calls those that it resumes.
    #[must_use]
    pub fn wrapper_index(name: &str) -> Option<u8> {
        let rest = WRAPPER.iter().find_map(|beginning| name.strip_prefix(beginning))?;
        rest.split_once('(').map_or(rest, |(number, _)| number).parse().ok()
    }

    /// Whether suspended state machines go on by the method with this full name, with or without its parameters:
    /// `MoveNext` of a box, or a method that calls it.
    #[must_use]
    pub fn resumes(name: &str) -> bool {
        let Some(rest) = name.strip_prefix("System.Runtime.CompilerServices.") else { return false };
        let rest = rest.rsplit_once('(').map_or(rest, |(rest, _)| rest);
        let Some((class, method)) = rest.rsplit_once('.') else { return false };
        let is_box = |(builder, of_box): &(&str, &str)| {
            let rest = class.strip_prefix(builder).unwrap_or_default();
            let is_generic = |rest: &str| rest.starts_with(['<', '`']);
            is_generic(rest) && rest.split(['.', '+']).any(|part| part.strip_prefix(of_box).is_some_and(is_generic))
        };
        RESUMING.contains(&method) && BOXES.iter().any(is_box)
    }
}

/// Methods of which a function tells, such as one that asks the runtime of a profiler.
///
/// ```
/// use corprof_async::{AskedMethods, Methods};
///
/// // A profiler asks `cx.code_address` and `cx.function_from_ip`, and takes the name from `cx.names()`.
/// let methods = AskedMethods::new(|address| (address >= 0x1000).then(|| (7, "Shop.Load()".to_owned())));
/// assert_eq!(methods.method_at(0x1010), Some(7));
/// assert_eq!(methods.name_at(0x1010).as_deref(), Some("Shop.Load()"));
/// assert_eq!(methods.name_at(0x10), None);
/// ```
#[derive(Debug)]
pub struct AskedMethods<F> {
    ask: F,
    /// The names, by the numbers of methods.
    names: RefCell<HashMap<u64, Box<str>>>,
}

impl<F: Fn(u64) -> Option<(u64, String)>> AskedMethods<F> {
    /// `ask` tells of an address the number of its method, the same for all bodies of a method, and the method's full
    /// name, with or without parameters. What it has told once is not kept: code is replaced and unloaded.
    pub fn new(ask: F) -> Self {
        Self { ask, names: RefCell::default() }
    }

    /// The full name of the method whose code has this address.
    pub fn name_at(&self, address: u64) -> Option<String> {
        (self.ask)(address).map(|(_, name)| name)
    }
}

impl<F: Fn(u64) -> Option<(u64, String)>> Methods for AskedMethods<F> {
    fn method_at(&self, address: u64) -> Option<u64> {
        let (method, name) = (self.ask)(address)?;
        self.names.borrow_mut().insert(method, name.into());
        Some(method)
    }

    fn wrapper_index(&self, method: u64) -> Option<u8> {
        MethodTable::wrapper_index(self.names.borrow().get(&method)?)
    }

    fn resumes(&self, method: u64) -> bool {
        self.names.borrow().get(&method).is_some_and(|name| MethodTable::resumes(name))
    }
}

impl Methods for MethodTable {
    fn method_at(&self, address: u64) -> Option<u64> {
        let (_, code) = self.code.range(..=address).next_back()?;
        (address < code.end).then_some(code.method)
    }

    fn wrapper_index(&self, method: u64) -> Option<u8> {
        self.methods.get(&method)?.wrapper
    }

    fn resumes(&self, method: u64) -> bool {
        self.methods.get(&method).is_some_and(|method| method.resumes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_known_by_the_names_of_the_runtime_and_of_csharp() {
        let index = |rest| MethodTable::wrapper_index(&format!("System.Runtime.CompilerServices.AsyncProfiler{rest}"));
        assert_eq!(index("+ContinuationWrapper.Continuation_Wrapper_7"), Some(7));
        assert_eq!(index(".ContinuationWrapper.Continuation_Wrapper_31(object, ref byte)"), Some(31));
        assert_eq!(index(".ContinuationWrapper.Continuation_Wrapper_"), None);
        assert_eq!(index(".Continuation_Wrapper_7"), None);
    }

    #[test]
    fn boxes_are_known_by_the_names_of_the_runtime_and_of_csharp() {
        let resumes = |rest| MethodTable::resumes(&format!("System.Runtime.CompilerServices.{rest}"));
        assert!(resumes("AsyncTaskMethodBuilder<long>.AsyncStateMachineBox<Shop.<Load>d__2>.MoveNext(Thread)"));
        assert!(resumes(
            "AsyncTaskMethodBuilder`1+AsyncProfilerAsyncStateMachineBox`1[System.Int64,Shop+<Load>d__2]\
             .MoveNextAsDispatcher"
        ));
        assert!(resumes(
            "PoolingAsyncValueTaskMethodBuilder`1+StateMachineBox`1[System.Int64,Shop+<Load>d__2].MoveNext"
        ));
        assert!(!resumes("AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1[System.Int64,A].ExecutionContextCallback"));
        assert!(!resumes("AsyncTaskMethodBuilder<long>.Start<Shop.StateMachineBox<A>>.MoveNext()"));
        assert!(!resumes("TaskAwaiter.MoveNext()"));
        assert!(!MethodTable::resumes("Shop.<Load>d__2.MoveNext()"));
    }
}
