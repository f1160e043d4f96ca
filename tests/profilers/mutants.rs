//! Puts the bodies that lie beside an assembly in the place of its own, and says what the verifier in the process
//! thinks of each when it is compiled: for `live/il.rs`.

#![allow(clippy::unwrap_used, reason = "that is how it fails")]

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use corprof::edit::EditError;
use corprof::metadata::MethodDef;
use corprof::prelude::*;
use corprof_il::Body;

/// Reads `ASSEMBLY.bodies` for each assembly that is loaded: a token, a length and so many bytes for each method.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2011")]
struct Mutants {
    /// The modules whose bodies were replaced.
    modules: Mutex<BTreeSet<ModuleId>>,
    /// The bodies that nothing has been said of yet.
    unsaid: Mutex<HashMap<(ModuleId, MethodDef), Vec<u8>>>,
}

/// The rule that a body breaks as far as the process knows; `-` if none.
fn verdict(cx: &mut InCallback<'_>, module: ModuleId, method: MethodDef, bytes: &[u8]) -> String {
    let Ok(body) = Body::parse(bytes) else { return "(cannot be parsed)".to_owned() };
    let checked = cx.edit_method(module, method, |edit| {
        // SAFETY: it is verified, and not used.
        *unsafe { edit.body_mut() } = body;
        Ok(())
    });
    match checked {
        Ok(_) => "-".to_owned(),
        Err(EditError::Rejected(breaches)) => {
            breaches.first().map_or("(too deep)", |breach| breach.rule.name()).to_owned()
        }
        Err(error) => format!("({error})"),
    }
}

/// The next number of four bytes, which goes from the front of `bytes`.
fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*first))
}

#[callbacks]
impl Callbacks for Mutants {
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let Ok(info) = cx.module_info(module) else { return };
        let Ok(bodies) = std::fs::read(format!("{}.bodies", info.path)) else { return };
        self.modules.lock().unwrap().insert(module);
        let mut rest = &*bodies;
        while let Some(token) = number(&mut rest) {
            let length = number(&mut rest).unwrap() as usize;
            let (body, after) = rest.split_at(length);
            rest = after;
            self.unsaid.lock().unwrap().insert((module, MethodDef::from_raw(token)), body.to_vec());
            // SAFETY: the code may be anything. It is compiled and never run; the test is that the compiler survives
            // it, in a process of its own.
            let set = unsafe { cx.set_il_function_body(module, MethodDef::from_raw(token), body) };
            if let Err(error) = set {
                // The line is read by the test.
                eprintln!("mutants| {} {token:#x}: {error}", info.path);
            }
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let Ok(info) = cx.function_info(function) else { return };
        let Some(bytes) = self.unsaid.lock().unwrap().remove(&(info.module, info.token)) else { return };
        let verdict = verdict(cx, info.module, info.token, &bytes);
        let path = cx.module_info(info.module).map(|info| info.path).unwrap_or_default();
        // The line is read by the test.
        eprintln!("verdict| {path} {:#x}: {verdict}", info.token.as_raw());
    }

    /// Turns down the precompiled code of the methods whose bodies were replaced: it is of the old ones.
    fn jit_cached_function_search_started(&self, cx: &mut InCallback<'_>, function: FunctionId) -> bool {
        let modules = self.modules.lock().unwrap();
        modules.is_empty() || !cx.function_info(function).is_ok_and(|info| modules.contains(&info.module))
    }
}
