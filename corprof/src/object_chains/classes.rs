//! Whether a word of memory is a class.
//!
//! The runtime follows an id without a look, so it must not be asked about a word that was read where an object may
//! have been. Each description of a class has that of its base class, and its module, at the same places; where these
//! are is learned from classes that the runtime has named. A word is a class if what it leads to has a loaded module
//! and a base class, which again has both, up to `System.Object`.

use std::collections::HashSet;

use crate::context::InNoGc;
use crate::error::Result;
use crate::id::ClassId;
use crate::profiler_thread::ProfilerThread;
use crate::runtime_layout::memory::{Evidence, word};

/// How far a description is looked through, in words.
const WORDS: usize = 12;
/// How many base classes a class has at most.
const MOST_BASES: usize = 64;

/// How descriptions of classes are recognised.
#[derive(Debug)]
pub(super) struct Classes {
    /// Where they have that of the base class, in bytes.
    parent: usize,
    /// Where they have the module.
    module: usize,
    /// `System.Object`, the only class without a base.
    root: usize,
    modules: HashSet<usize>,
}

/// What the runtime says of a class.
struct Known {
    class: usize,
    parent: usize,
    module: usize,
}

impl Classes {
    /// Learns it from these classes and their base classes, without modules yet; none if the descriptions have nothing
    /// in common, or more than is needed.
    pub(super) fn learn(cx: &InNoGc<'_>, classes: impl IntoIterator<Item = ClassId>) -> Option<Self> {
        let mut all_known = Vec::new();
        let mut root = None;
        // Many threads may be in one method.
        for class in classes.into_iter().collect::<HashSet<_>>() {
            let mut current = class;
            for _ in 0..MOST_BASES {
                let Ok(info) = cx.class_info(current) else { break };
                let Some(parent) = info.parent else { break };
                let known = Known { class: current.as_raw(), parent: parent.as_raw(), module: info.module.as_raw() };
                all_known.push(known);
                root = Some(parent.as_raw());
                current = parent;
            }
        }
        let parent = common_place(&all_known, |known| known.parent)?;
        let module = common_place(&all_known, |known| known.module)?;
        Some(Self { parent, module, root: root?, modules: HashSet::new() })
    }

    /// Takes the modules that are loaded now.
    ///
    /// # Errors
    /// If the runtime does not list them.
    pub(super) fn take_modules(&mut self, cx: &mut ProfilerThread<'_>) -> Result<()> {
        self.modules = cx.enum_modules()?.into_iter().map(|module| module.as_raw()).collect();
        Ok(())
    }

    /// What is in the place of the base class, if this is a class.
    pub(super) fn base(&self, class: usize) -> Option<usize> {
        read(&mut Evidence::default(), class, self.parent)
    }

    /// Whether this is a class. What is read for it becomes evidence.
    pub(super) fn has(&self, class: usize, evidence: &mut Evidence) -> bool {
        let mut current = class;
        for _ in 0..MOST_BASES {
            let module = read(evidence, current, self.module);
            if !module.is_some_and(|module| self.modules.contains(&module)) {
                return false;
            }
            if current == self.root {
                return true;
            }
            let Some(parent) = read(evidence, current, self.parent) else { return false };
            current = parent;
        }
        false
    }
}

/// A word of a description; none where there can be none.
fn read(evidence: &mut Evidence, class: usize, place: usize) -> Option<usize> {
    if class == 0 || !class.is_multiple_of(size_of::<usize>()) {
        return None;
    }
    evidence.word(class.checked_add(place)?)
}

/// The only place at which the descriptions of all have this word of theirs, in bytes.
fn common_place(all: &[Known], expected: impl Fn(&Known) -> usize) -> Option<usize> {
    let mut places = (0..WORDS).map(|index| index * size_of::<usize>()).filter(|place| {
        all.iter().all(|known| known.class.checked_add(*place).and_then(word) == Some(expected(known)))
    });
    let place = places.next()?;
    places.next().is_none().then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: usize = 0x7000;

    /// A description, as far as it is looked at.
    type Described = Box<[usize; WORDS]>;

    fn described(parent: usize, module: usize) -> Described {
        let mut words = [1; WORDS];
        words[2] = parent;
        words[3] = module;
        Box::new(words)
    }

    fn address(description: &Described) -> usize {
        description.as_ptr().expose_provenance()
    }

    fn known(description: &Described) -> Known {
        Known { class: address(description), parent: description[2], module: description[3] }
    }

    #[test]
    fn a_class_leads_to_the_root_through_classes_of_loaded_modules() {
        let root = described(0, MODULE);
        let base = described(address(&root), MODULE);
        let class = described(address(&base), MODULE);
        let all = [known(&class), known(&base)];
        let parent = common_place(&all, |known| known.parent).unwrap();
        let module = common_place(&all, |known| known.module).unwrap();
        assert_eq!((parent, module), (16, 24));
        let classes = Classes { parent, module, root: address(&root), modules: HashSet::from([MODULE]) };
        let is_class = |description: &Described| classes.has(address(description), &mut Evidence::default());
        assert!(is_class(&root) && is_class(&base) && is_class(&class));

        let of_another_module = described(address(&base), 0x8000);
        let below_it = described(address(&of_another_module), MODULE);
        let of_no_class = described(8, MODULE);
        let mut of_itself = described(0, MODULE);
        of_itself[2] = address(&of_itself);
        for wrong in [of_another_module, below_it, of_no_class, of_itself] {
            assert!(!is_class(&wrong));
        }
        for wrong in [0, 1, 8, address(&class) + 1, usize::MAX - 7] {
            assert!(!classes.has(wrong, &mut Evidence::default()), "{wrong:#x}");
        }
    }

    #[test]
    fn a_place_is_learned_only_if_it_is_the_only_one() {
        let mut class = described(0x5000, MODULE);
        class[7] = 0x5000;
        assert_eq!(common_place(&[known(&class)], |known| known.parent), None);
        let other = described(0x6000, MODULE);
        assert_eq!(common_place(&[known(&class), known(&other)], |known| known.parent), Some(16));
    }
}
