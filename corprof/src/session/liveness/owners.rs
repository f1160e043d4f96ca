//! [`Owners`]: the modules that a class or a function depends on.

use std::collections::BTreeSet;

use windows_core::HRESULT;

use super::Liveness;
use super::table::State;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::session::Runtime;

/// How deep type arguments and array elements are followed.
const DEPTH: u32 = 16;

/// The collectible modules that a class or function depends on: the one that defines it, and those of its type
/// arguments.
#[derive(Default)]
pub(super) struct Owners {
    pub(super) modules: Vec<usize>,
    /// Whether there may be others: before .NET 10 the runtime does not say over which types shared code was made.
    pub(super) is_uncertain: bool,
    /// The classes followed so far: each level may name the next several times, and following it each time would not
    /// end.
    seen: BTreeSet<ClassId>,
}

impl Owners {
    /// The owners of a function that is in memory until this returns.
    pub(super) fn of_function(liveness: &Liveness, runtime: &Runtime, function: FunctionId) -> Self {
        let mut owners = Self::default();
        match runtime.ask_function(function) {
            // The class of a dynamic method is missing or meaningless.
            Ok(answer) if answer.token.is_nil() => owners.add_module(liveness, answer.module),
            Ok(answer) => {
                owners.is_uncertain |= answer.class.is_none();
                owners.add_module(liveness, answer.module);
                let classes = answer.class.into_iter().chain(answer.type_args);
                classes.for_each(|class| owners.add_class(liveness, runtime, class, DEPTH));
            }
            Err(_) => owners.is_uncertain = true,
        }
        owners
    }

    /// The owners of a class that is in memory until this returns.
    pub(super) fn of_class(liveness: &Liveness, runtime: &Runtime, class: ClassId) -> Self {
        let mut owners = Self::default();
        owners.add_class(liveness, runtime, class, DEPTH);
        owners
    }

    /// The module of a function that is in memory until this returns, and those of its class and type arguments.
    pub(super) fn all_modules(runtime: &Runtime, function: FunctionId) -> Vec<ModuleId> {
        let Ok(answer) = runtime.ask_function(function) else { return Vec::new() };
        let mut modules = vec![answer.module];
        let mut classes: Vec<_> = answer.class.into_iter().chain(answer.type_args).collect();
        let mut seen = BTreeSet::new();
        while let Some(class) = classes.pop() {
            if answer.token.is_nil() || !seen.insert(class) {
                continue;
            }
            let Ok((module, parts)) = parts(runtime, class) else { continue };
            modules.extend(module);
            classes.extend(parts);
        }
        modules
    }

    fn add_module(&mut self, liveness: &Liveness, module: ModuleId) {
        let module = module.as_raw();
        let is_collectible = liveness.modules.get(module).is_some_and(|entry| entry.state() != State::Immortal);
        if is_collectible && !self.modules.contains(&module) {
            self.modules.push(module);
        }
    }

    fn add_class(&mut self, liveness: &Liveness, runtime: &Runtime, class: ClassId, depth: u32) {
        if !self.seen.insert(class) {
            return;
        }
        let parts = parts(runtime, class);
        let (Ok((module, parts)), Some(depth)) = (parts, depth.checked_sub(1)) else {
            self.is_uncertain = true;
            return;
        };
        if let Some(module) = module {
            self.add_module(liveness, module);
        }
        parts.into_iter().for_each(|part| self.add_class(liveness, runtime, part, depth));
    }
}

/// The parts of a class that is in memory: the module that defines it (none for an array), and its type arguments or
/// the class of its elements.
pub(super) fn parts(runtime: &Runtime, class: ClassId) -> Result<(Option<ModuleId>, Vec<ClassId>), HRESULT> {
    match runtime.ask_array(class).map_err(|error| error.code())? {
        // An array of elements without a class, such as pointers, could be of anything.
        Some(array) => Ok((None, vec![array.element.ok_or(crate::error::E_FAIL)?])),
        None => runtime.ask_class(class).map(|class| (Some(class.module), class.type_args)),
    }
}
