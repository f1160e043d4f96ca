//! The classes of the static fields that are roots of a snapshot of the heap. The runtime reports a field's name and
//! address, without its class. The metadata has all fields of such a name, and the runtime says where each is.
//!
//! It does not say so of a structure, which is in a box, nor of a class without methods: a class is known to be loaded
//! by its methods, and those that are not loaded are left alone. A field that remains is of such a class if only one
//! has a field of that name. If several have, it stays without a class. Fields of generic classes are no roots: an
//! array that a handle keeps has their values.

use std::collections::{HashMap, HashSet};

use corprof::events::views::GcBulkRootStaticVar;
use corprof::events::{Event, Provider};
use corprof::metadata::{FieldDef, MetadataImport, TypeDef};
use corprof::prelude::*;
use corprof::sys;

/// The event of a block with static fields.
const BLOCK: u16 = 38;

/// The static fields in the blocks of a snapshot.
#[derive(Default)]
pub(crate) struct StaticFields {
    /// Their names, by their addresses.
    fields: HashMap<u64, String>,
    names: HashSet<String>,
}

/// Where a field may be.
struct Candidate {
    class: ClassId,
    field: FieldDef,
    name: String,
    /// Whether its value may be in a box.
    is_boxed: bool,
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
            let name = field.field_name.to_string();
            self.names.insert(name.clone());
            self.fields.insert(field.root_id, name);
        }
    }

    /// The names of the classes, by the addresses of the fields. A module that is unloaded meanwhile has none.
    pub(crate) fn classes(&self, cx: &mut ProfilerThread<'_>) -> HashMap<u64, Name> {
        let mut found = HashMap::new();
        let mut others = Others::default();
        for module in cx.enum_modules().unwrap_or_default() {
            for candidate in self.candidates(cx, module, &mut others).unwrap_or_default() {
                let class = cx.names().csharp().class(candidate.class);
                match address(cx, &candidate).filter(|address| self.fields.contains_key(address)) {
                    Some(address) => {
                        found.insert(address, class);
                    }
                    None if candidate.is_boxed => others.add(&candidate.name, &class),
                    None => {} // it has no value yet
                }
            }
        }
        for (address, field) in &self.fields {
            if let Some(Some(class)) = others.0.get(field) {
                found.entry(*address).or_insert_with(|| class.as_str().into());
            }
        }
        found
    }

    /// The static fields of loaded classes of a module that have one of the names.
    fn candidates(
        &self,
        cx: &mut ProfilerThread<'_>,
        module: ModuleId,
        others: &mut Others,
    ) -> corprof::Result<Vec<Candidate>> {
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
                let Some(class) = class else {
                    if is_object(&props.signature) && metadata.generic_params(definition)?.is_empty() {
                        others.add(&props.name, &class_name(&metadata, definition)?);
                    }
                    continue;
                };
                // Those of threads are in arrays on the heap.
                let kind = cx.static_field_info(class, field);
                if kind.is_ok_and(|kind| kind.contains(sys::COR_PRF_FIELD_APP_DOMAIN_STATIC)) {
                    let is_boxed = is_boxed(&props.signature);
                    candidates.push(Candidate { class, field, is_boxed, name: props.name, app_domain });
                }
            }
        }
        Ok(candidates)
    }
}

/// The classes whose fields the runtime does not place, by the names of the fields. None: there are several.
#[derive(Default)]
struct Others(HashMap<String, Option<String>>);

impl Others {
    fn add(&mut self, field: &str, class: &str) {
        let several = self.0.get(field).map(|_| None);
        self.0.insert(field.to_owned(), several.unwrap_or_else(|| Some(class.to_owned())));
    }
}

/// Whether a field with this signature may be a structure.
fn is_boxed(signature: &[u8]) -> bool {
    let element = |at: usize| signature.get(at).map(|byte| u32::from(*byte));
    let is_structure = |at| element(at) == Some(sys::ELEMENT_TYPE_VALUETYPE.0);
    is_structure(1) || element(1) == Some(sys::ELEMENT_TYPE_GENERICINST.0) && is_structure(2)
}

/// Whether a field with this signature may keep an object: it is no number.
fn is_object(signature: &[u8]) -> bool {
    signature.get(1).is_some_and(|element| u32::from(*element) > sys::ELEMENT_TYPE_R8.0)
}

/// The name of a class that is not generic, as C# spells it.
fn class_name(metadata: &MetadataImport<'_>, definition: TypeDef) -> corprof::Result<String> {
    let mut levels = vec![metadata.type_def(definition)?.name];
    let mut inner = definition;
    while let Some(outer) = metadata.enclosing_class(inner)? {
        levels.insert(0, metadata.type_def(outer)?.name);
        inner = outer;
    }
    Ok(levels.join("."))
}

/// A class that is not generic, if it is loaded and has methods.
fn loaded_class(cx: &ProfilerThread<'_>, module: ModuleId, definition: TypeDef) -> Option<ClassId> {
    let methods = cx.metadata(module).ok()?.methods(definition).ok()?;
    methods.into_iter().find_map(|method| {
        let function = cx.function_from_token(module, method).ok()?;
        cx.function_info(function).ok()?.class
    })
}

/// The address of a field, of a structure that of its value.
fn address(cx: &ProfilerThread<'_>, candidate: &Candidate) -> Option<u64> {
    let Candidate { class, field, app_domain, .. } = *candidate;
    cx.app_domain_static_address(class, field, app_domain).ok().map(|address| address as u64)
}
