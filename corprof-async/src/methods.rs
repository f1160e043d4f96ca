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
}

/// What the names of the wrappers begin with, by the runtime and as C# has it.
const WRAPPER: [&str; 2] = [
    "System.Runtime.CompilerServices.AsyncProfiler+ContinuationWrapper.Continuation_Wrapper_",
    "System.Runtime.CompilerServices.AsyncProfiler.ContinuationWrapper.Continuation_Wrapper_",
];

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
            self.methods.insert(method, Method { name: name.into(), wrapper: Self::wrapper_index(name) });
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
}

impl Methods for MethodTable {
    fn method_at(&self, address: u64) -> Option<u64> {
        let (_, code) = self.code.range(..=address).next_back()?;
        (address < code.end).then_some(code.method)
    }

    fn wrapper_index(&self, method: u64) -> Option<u8> {
        self.methods.get(&method)?.wrapper
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
}
