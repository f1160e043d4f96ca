//! The classes of the static fields that are roots of a snapshot of the heap. The runtime reports a field's name and
//! address, without its class. The metadata has all fields of such a name, and the runtime says where each is.
//!
//! Not found are fields of generic classes, whose addresses no call returns, and those of classes without methods:
//! classes that are not loaded are left alone, and a class is known to be loaded by its methods.

use std::collections::{HashMap, HashSet};

use corprof::events::views::GcBulkRootStaticVar;
use corprof::events::{Event, Provider};
use corprof::metadata::{FieldDef, TypeDef};
use corprof::prelude::*;
use corprof::sys;

/// The event of a block with static fields.
const BLOCK: u16 = 38;

/// The static fields in the blocks of a snapshot.
#[derive(Default)]
pub(crate) struct StaticFields {
    addresses: HashSet<u64>,
    names: HashSet<String>,
}

/// Where a field may be.
struct Candidate {
    class: ClassId,
    field: FieldDef,
    app_domain: AppDomainId,
}

impl StaticFields {
    /// Adds the fields of a block, if it has some.
    pub(crate) fn add(&mut self, event: u16, payload: &[u8]) {
        if event != BLOCK {
            return;
        }
        let event = Event::new(Provider::RUNTIME, BLOCK.into(), 0, payload, usize::BITS == 64);
        let Ok(block) = event.decode::<GcBulkRootStaticVar<'_>>() else { return };
        for field in block.values {
            self.addresses.insert(field.root_id);
            self.names.insert(field.field_name.to_string());
        }
    }

    /// The names of the classes, by the addresses of the fields. A module that is unloaded meanwhile has none.
    pub(crate) fn classes(&self, cx: &mut ProfilerThread<'_>) -> HashMap<u64, Name> {
        let mut found = HashMap::new();
        for module in cx.enum_modules().unwrap_or_default() {
            for candidate in self.candidates(cx, module).unwrap_or_default() {
                let address = address(cx, &candidate).filter(|address| self.addresses.contains(address));
                found.extend(address.map(|address| (address, cx.names().csharp().class(candidate.class))));
            }
        }
        found
    }

    /// The static fields of loaded classes of a module that have one of the names.
    fn candidates(&self, cx: &mut ProfilerThread<'_>, module: ModuleId) -> corprof::Result<Vec<Candidate>> {
        let Some(app_domain) = cx.app_domains_containing_module(module)?.first().copied() else {
            return Ok(Vec::new());
        };
        let metadata = cx.metadata(module)?;
        let mut candidates = Vec::new();
        for definition in metadata.type_defs()? {
            let mut class = None;
            for field in metadata.fields(definition)? {
                let props = metadata.field(field)?;
                let is_static = props.flags.contains(sys::fdStatic) && !props.flags.contains(sys::fdLiteral);
                if !is_static || !self.names.contains(&props.name) {
                    continue;
                }
                let class = *class.get_or_insert_with(|| loaded_class(cx, module, definition));
                candidates.extend(class.map(|class| Candidate { class, field, app_domain }));
            }
        }
        Ok(candidates)
    }
}

/// A class that is not generic, if it is loaded and has methods.
fn loaded_class(cx: &ProfilerThread<'_>, module: ModuleId, definition: TypeDef) -> Option<ClassId> {
    let methods = cx.metadata(module).ok()?.methods(definition).ok()?;
    methods.into_iter().find_map(|method| {
        let function = cx.function_from_token(module, method).ok()?;
        cx.function_info(function).ok()?.class
    })
}

/// The address of a field. The runtime does not report those of threads: their values are in arrays on the heap.
fn address(cx: &ProfilerThread<'_>, candidate: &Candidate) -> Option<u64> {
    let Candidate { class, field, app_domain } = *candidate;
    let kind = cx.static_field_info(class, field).ok()?;
    if !kind.contains(sys::COR_PRF_FIELD_APP_DOMAIN_STATIC) {
        return None;
    }
    cx.app_domain_static_address(class, field, app_domain).ok().map(|address| address as u64)
}
