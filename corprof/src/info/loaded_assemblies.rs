//! The loaded assemblies by name, for types that signatures name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::id::ModuleId;
use crate::lock::unpoisoned;
use crate::session::{Info, Observer};

/// The loaded assemblies by name.
#[derive(Default)]
pub(super) struct Assemblies {
    by_name: Mutex<ByName>,
    sole: Mutex<HashMap<String, Arc<SoleAssembly>>>,
}

/// The loaded assemblies by name, until the set of loaded modules changes.
#[derive(Default)]
pub(super) struct ByName {
    /// The value of [`Liveness::changes`](crate::session::liveness::Liveness::changes) before listing; none before the
    /// first.
    pub(super) changes: Option<u64>,
    /// None for a name that several assemblies have.
    pub(super) modules: HashMap<String, Option<ModuleId>>,
}

/// An assembly that was found by its name. Another load context may load another one of that name, and mean its types:
/// the runtime reports that before it uses them.
#[derive(Debug, Default)]
pub(crate) struct SoleAssembly {
    /// 0 until it is found.
    module: AtomicUsize,
    has_namesake: AtomicBool,
}

impl SoleAssembly {
    /// Whether another assembly of its name has been loaded.
    #[inline]
    pub(crate) fn has_namesake(&self) -> bool {
        self.has_namesake.load(SeqCst)
    }

    /// The look-up that began with this one has found `module`. Returns whether this one stands for it.
    fn is_found(&self, module: ModuleId) -> bool {
        let first = self.module.compare_exchange(0, module.as_raw(), SeqCst, SeqCst);
        first.is_ok() || first == Err(module.as_raw())
    }
}

impl Observer for Assemblies {}

impl Info {
    /// The loaded assemblies by name, as they were last listed.
    pub(super) fn loaded_assemblies(&self) -> &Assemblies {
        self.extension()
    }
}

impl Assemblies {
    /// The runtime is never called under this lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, ByName> {
        unpoisoned(self.by_name.lock())
    }

    /// Finds the only loaded assembly of a name by `find`. From before the look-up on, namesakes are noticed.
    pub(super) fn rely_on<E>(
        &self,
        name: &str,
        mut find: impl FnMut() -> Result<ModuleId, E>,
    ) -> Result<(ModuleId, Arc<SoleAssembly>), E> {
        loop {
            let sole = self.noticed(name);
            let module = find()?;
            if sole.is_found(module) {
                return Ok((module, sole));
            }
            // This is another assembly than the one that was found before. A listing may have it before the runtime
            // reports it.
            sole.has_namesake.store(true, SeqCst);
        }
    }

    fn noticed(&self, name: &str) -> Arc<SoleAssembly> {
        let mut sole = unpoisoned(self.sole.lock());
        match sole.get(name).filter(|sole| !sole.has_namesake()) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::<SoleAssembly>::default();
                sole.insert(name.to_owned(), Arc::clone(&new));
                new
            }
        }
    }

    /// An assembly is loaded. Without a `name` it may be a namesake of any.
    pub(super) fn loaded(&self, name: Option<&str>, module: usize) {
        let sole = unpoisoned(self.sole.lock());
        let namesakes = sole.iter().filter(|(of, _)| name.is_none_or(|name| name == *of)).map(|(_, sole)| sole);
        for namesake in namesakes.filter(|sole| sole.module.load(SeqCst) != module) {
            namesake.has_namesake.store(true, SeqCst);
        }
    }

    pub(super) fn is_any_relied_on(&self) -> bool {
        !unpoisoned(self.sole.lock()).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(number: usize) -> ModuleId {
        ModuleId::from_raw(number).unwrap()
    }

    fn rely_on(assemblies: &Assemblies, name: &str, number: usize) -> Arc<SoleAssembly> {
        assemblies.rely_on(name, || Ok::<_, ()>(module(number))).unwrap().1
    }

    #[test]
    fn a_namesake_is_noticed_and_others_are_not() {
        let assemblies = Assemblies::default();
        let [one, other] = ["One", "Other"].map(|name| rely_on(&assemblies, name, 8));
        assemblies.loaded(Some("One"), 8);
        assemblies.loaded(Some("New"), 24);
        assert!(!one.has_namesake() && !other.has_namesake(), "it is itself, or nobody has asked");
        assemblies.loaded(Some("One"), 16);
        assert!(one.has_namesake() && !other.has_namesake());
        assemblies.loaded(None, 32);
        assert!(other.has_namesake(), "it may be of any name");
    }

    #[test]
    fn one_that_is_loaded_during_the_look_up_is_noticed() {
        let assemblies = Assemblies::default();
        let find = || {
            assemblies.loaded(Some("One"), 16);
            Ok::<_, ()>(module(8))
        };
        assert!(assemblies.rely_on("One", find).unwrap().1.has_namesake());
    }

    #[test]
    fn the_next_of_a_name_stands_for_itself() {
        let assemblies = Assemblies::default();
        let first = rely_on(&assemblies, "One", 8);
        let next = rely_on(&assemblies, "One", 16);
        assert!(first.has_namesake(), "it is listed, and not reported yet");
        assemblies.loaded(Some("One"), 16);
        assert!(!next.has_namesake());
    }
}
