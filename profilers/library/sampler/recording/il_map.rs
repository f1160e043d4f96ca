//! Which IL the code of methods is of, where the module has a PDB: readers of the recording find lines by it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use corprof::id::NativeCode;
use corprof::info::IlOffset;
use corprof::prelude::*;
use corprof_export::SourceLines;

/// The IL of some code.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::sampler) struct IlMap {
    pub(super) module: Arc<str>,
    pub(super) token: u32,
    /// Offsets in the code, ascending, each with the one in the IL.
    pub(super) offsets: Vec<(u32, u32)>,
}

/// The modules that were looked at for a PDB.
#[derive(Default)]
pub(in crate::sampler) struct ModulesWithLines {
    known: HashMap<Arc<str>, bool>,
}

impl ModulesWithLines {
    /// The IL of the code of a function. This reads files.
    pub(super) fn il_map(&mut self, cx: &InNoGc<'_>, function: FunctionId, code: NativeCode) -> Option<Arc<IlMap>> {
        let info = cx.function_info(function).ok().filter(|info| !info.token.is_nil())?;
        let module: Arc<str> = cx.module_info(info.module).ok()?.path.into();
        if !self.has_lines(&module) {
            return None;
        }
        let ranges = cx.il_to_native_mapping(code).ok()?;
        let offsets = offsets(ranges.into_iter().map(|range| (range.il, range.native_start)));
        Some(Arc::new(IlMap { module, token: info.token.as_raw(), offsets }))
    }

    fn has_lines(&mut self, module: &Arc<str>) -> bool {
        if let Some(known) = self.known.get(module) {
            return *known;
        }
        let has_lines = !module.is_empty() && SourceLines::are_there(Path::new(&**module));
        self.known.insert(Arc::clone(module), has_lines);
        has_lines
    }
}

/// The beginnings of ranges that belong to an instruction. What belongs to none is of the one before.
fn offsets(beginnings: impl IntoIterator<Item = (IlOffset, u32)>) -> Vec<(u32, u32)> {
    let offsets = beginnings.into_iter().filter_map(|(il, native)| match il {
        IlOffset::At(offset) => Some((native, offset)),
        IlOffset::Prolog => Some((native, 0)),
        _ => None,
    });
    let mut offsets: Vec<_> = offsets.collect();
    offsets.sort_unstable();
    // Of several instructions at one place, the last one is at work there.
    offsets.dedup_by(|later, kept| {
        let is_same = later.0 == kept.0;
        if is_same {
            kept.1 = later.1;
        }
        is_same
    });
    offsets.dedup_by_key(|(_, il)| *il);
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_without_an_instruction_is_of_the_one_before() {
        let map = [
            (IlOffset::At(7), 16),
            (IlOffset::Prolog, 0),
            (IlOffset::At(9), 16),
            (IlOffset::At(0), 8),
            (IlOffset::NoMapping, 20),
            (IlOffset::Epilog, 30),
        ];
        assert_eq!(offsets(map), [(0, 0), (16, 9)]);
    }
}
