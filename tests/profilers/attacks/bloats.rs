//! Adds as many local variables or probes to each method of the application as ATTACKS_MOST says: of the kind that
//! ATTACKS_BLOATS says.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::edit::{EditError, MethodEdit, Probe};
use corprof::metadata::TypeDefOrRef;
use corprof::metadata::signature::{Primitive, Type};
use corprof::prelude::*;

#[derive(Profiler, Default)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C90F", no_export)]
pub(crate) struct Bloats {
    edited: AtomicU64,
    refused: AtomicU64,
}

struct Sees;

impl Probe for Sees {}

fn bloat(edit: &mut MethodEdit<'_>, kind: &str, most: usize) -> Result<(), EditError> {
    for _ in 0..most {
        match kind {
            "numbers" => _ = edit.add_local(Type::Primitive(Primitive::Int64))?,
            "objects" => _ = edit.add_local(Type::Primitive(Primitive::Object))?,
            "structs" => {
                let decimal = edit.type_ref("mscorlib", "System.Decimal")?;
                edit.add_local(Type::ValueType(TypeDefOrRef::Ref(decimal)))?;
            }
            _ => edit.probe(Sees)?,
        }
    }
    Ok(())
}

#[callbacks]
impl Callbacks for Bloats {
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        if &*cx.names().module(module) != "Deep.dll" {
            return;
        }
        let kind = std::env::var("ATTACKS_BLOATS").unwrap();
        let most = std::env::var("ATTACKS_MOST").unwrap().parse().unwrap();
        let methods = || {
            let metadata = cx.metadata(module)?;
            let classes = metadata.type_defs()?;
            classes.into_iter().map(|class| metadata.methods(class)).collect::<Result<Vec<_>>>()
        };
        for method in methods().unwrap().into_iter().flatten() {
            let count = match cx.edit_method(module, method, |edit| bloat(edit, &kind, most)) {
                Ok(body) => {
                    cx.set_checked_body(&body).unwrap();
                    &self.edited
                }
                Err(_) => &self.refused,
            };
            count.fetch_add(1, Relaxed);
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("attacks| edited={} refused={}", self.edited.load(Relaxed), self.refused.load(Relaxed));
    }
}
