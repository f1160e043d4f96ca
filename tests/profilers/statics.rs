//! Asks about each static field of the program's classes: for `live/statics.rs`.

use std::fmt::Debug;

use corprof::prelude::*;
use corprof::sync::Mutex;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1301", no_export)]
struct Asks {
    classes: Mutex<Vec<ClassId>>,
}

fn tell<T: Debug>(what: &str, answer: Result<T>) {
    match answer {
        Ok(answer) => eprintln!("statics| {what}: {answer:?}"),
        Err(error) => eprintln!("statics| {what}: error {error}"),
    }
}

impl Asks {
    fn ask(cx: &mut InCallback<'_>, class: ClassId) -> Result<()> {
        let info = cx.class_info(class)?;
        let Some(assembly) = cx.module_info(info.module)?.assembly else { return Ok(()) };
        let Some(domain) = cx.assembly_info(assembly)?.app_domain else { return Ok(()) };
        let name = cx.names().class(class).to_string();
        let import = cx.metadata(info.module)?;
        for field in import.fields(info.token)? {
            let what = format!("{name}.{}", import.field(field)?.name);
            tell(&format!("kind of {what}"), cx.static_field_info(class, field));
            tell(&format!("address of {what}"), cx.app_domain_static_address(class, field, domain).map(|_| ()));
            tell(
                &format!("profiler thread's {what}"),
                cx.thread_static_address(class, field, domain, None).map(|_| ()),
            );
        }
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Asks {
    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        let name = cx.names().class(class);
        if ["Generic<", "Plain"].iter().any(|start| name.as_str().starts_with(start)) {
            self.classes.lock(cx).push(class);
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if cx.names().function(function).as_str().starts_with("Statics.Ready") {
            let classes = self.classes.lock(cx).clone();
            for class in classes {
                if let Err(error) = Self::ask(cx, class) {
                    eprintln!("statics| {error}");
                }
            }
        }
    }
}

/// Asks for the generation of an object without asking for collections.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1302", no_export)]
struct LacksCollections;

#[callbacks]
impl Callbacks for LacksCollections {
    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        tell("generation", cx.object_generation(thrown).map(|_| ()));
        tell("bounds", cx.generation_bounds().map(|_| ()));
    }
}

corprof::export!(Asks, LacksCollections);
