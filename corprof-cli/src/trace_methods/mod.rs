//! The methods of a process, by the addresses of their code, from the events of a rundown and of code that comes and
//! goes. `spelling` writes their names as corprof's profilers do.

mod spelling;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use corprof_nettrace::events::views::{ModuleDCEnd, ModuleLoad};
use corprof_nettrace::events::{Event, Value};

/// Keywords of a rundown that has all of this at the end of a session: modules and methods, compiled now or before.
pub(crate) const RUNDOWN: u64 = 0x8 | 0x10 | 0x20 | 0x100;

/// Bit of a method's flags: it has no metadata.
const DYNAMIC: u64 = 1;
/// The number of pieces of code before an address that may reach as far as there: code of dynamic methods is freed, and
/// its room used again.
const MOST_BEFORE: usize = 16;

/// Methods and modules, as they come.
#[derive(Debug, Default)]
pub(crate) struct Methods {
    /// By the address of the code. An address may have belonged to several methods.
    code: BTreeMap<u64, Vec<Code>>,
    modules: HashMap<u64, PathBuf>,
}

/// The code of a method.
#[derive(Debug)]
struct Code {
    id: u64,
    size: u64,
    /// The ticks of the trace between which the method had this code.
    from: u64,
    to: u64,
    module: u64,
    token: u32,
    name: String,
}

/// What an event has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// Code was freed: other methods may get its addresses.
    Freed,
}

/// A method as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Method<'m> {
    /// With class and parameters.
    pub(crate) name: &'m str,
    /// The file of its module, and its token there; dynamic methods have none.
    pub(crate) definition: Option<(&'m Path, u32)>,
}

impl Methods {
    /// Takes an event of the runtime or of a rundown, if it is about code or a module.
    pub(crate) fn event(&mut self, event: &Event<'_>, ticks: u64) -> Change {
        let name = event.name();
        if name == "MethodDCEndVerbose" {
            self.method(event, 0, u64::MAX);
        } else if name == "MethodLoadVerbose" {
            self.method(event, ticks, u64::MAX);
        } else if name == "MethodUnloadVerbose" {
            self.method(event, 0, ticks);
            return Change::Freed;
        } else if let Ok(module) = event.decode::<ModuleDCEnd<'_>>() {
            self.modules.insert(module.module_id, module.il_path.to_string().into());
        } else if let Ok(module) = event.decode::<ModuleLoad<'_>>() {
            self.modules.insert(module.module_id, module.il_path.to_string().into());
        }
        Change::None
    }

    fn method(&mut self, event: &Event<'_>, from: u64, to: u64) {
        let number = |field| event.field(field).and_then(Value::as_u64);
        let text = |field| event.field(field).and_then(Value::as_text).map(|text| text.to_string()).unwrap_or_default();
        let (Some(start), Some(size), Some(id)) =
            (number("MethodStartAddress"), number("MethodSize"), number("MethodID"))
        else {
            return;
        };
        let at_start = self.code.entry(start).or_default();
        if let Some(known) = at_start.iter_mut().rfind(|code| code.id == id) {
            known.to = known.to.min(to);
            return;
        }
        let is_dynamic = number("MethodFlags").is_some_and(|flags| flags & DYNAMIC != 0);
        let name = if is_dynamic {
            spelling::dynamic_method(&text("MethodName"))
        } else {
            spelling::method(&text("MethodNamespace"), &text("MethodName"), &text("MethodSignature"))
        };
        // Obfuscated names may contain line breaks.
        let name = name.replace(char::is_control, " ");
        let module = number("ModuleID").unwrap_or_default();
        let token = number("MethodToken").filter(|_| !is_dynamic).unwrap_or_default();
        let token = u32::try_from(token).unwrap_or_default();
        at_start.push(Code { id, size, from, to, module, token, name });
    }

    /// The method whose code was at an address at that time.
    pub(crate) fn at(&self, address: u64, ticks: u64) -> Option<Method<'_>> {
        let before = self.code.range(..=address).rev().take(MOST_BEFORE);
        let codes = before.flat_map(|(start, codes)| codes.iter().rev().map(move |code| (start, code)));
        let mut codes = codes.filter(|(start, code)| address - *start < code.size);
        // What the runtime says of the time comes a little late.
        let first = codes.clone().next();
        let code = codes.find(|(_, code)| (code.from..code.to).contains(&ticks)).or(first)?.1;
        let module = self.modules.get(&code.module).filter(|_| code.token != 0);
        let definition = module.filter(|path| !path.as_os_str().is_empty()).map(|path| (path.as_path(), code.token));
        Some(Method { name: &code.name, definition })
    }
}

#[cfg(test)]
mod tests {
    use corprof_nettrace::events::Provider;

    use super::*;

    /// The payload of a verbose event of a method.
    fn payload(id: u64, start: u64, token: u32, flags: u32, texts: [&str; 3]) -> Vec<u8> {
        let mut payload = [id, 7, start].map(u64::to_le_bytes).concat();
        payload.extend([0x100, token, flags].map(u32::to_le_bytes).concat());
        for text in texts {
            payload.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        }
        payload.extend([0; 10]);
        payload
    }

    fn add(methods: &mut Methods, provider: Provider<'_>, number: u32, ticks: u64, payload: &[u8]) -> Change {
        methods.event(&Event::new(provider, number, 2, payload, true), ticks)
    }

    #[test]
    fn an_address_is_that_of_the_method_that_was_there_then() {
        let mut methods = Methods::default();
        let (rundown, runtime) = (Provider::RUNDOWN, Provider::RUNTIME);
        let known = payload(1, 0x1000, 0x0600_0001, 0, ["A", "M", "void  ()"]);
        assert_eq!(add(&mut methods, rundown, 144, 900, &known), Change::None);
        let dynamic = |id, start, name| payload(id, start, 0, 1, ["dynamicClass", name, "void  ()"]);
        add(&mut methods, runtime, 143, 100, &dynamic(2, 0x2000, "first"));
        assert_eq!(add(&mut methods, runtime, 144, 200, &dynamic(2, 0x2000, "first")), Change::Freed);
        add(&mut methods, runtime, 143, 300, &dynamic(3, 0x2080, "second"));
        // Was there before the session.
        add(&mut methods, runtime, 144, 400, &dynamic(4, 0x3000, "third"));

        let name = |address, ticks| methods.at(address, ticks).map(|method| method.name);
        assert_eq!(name(0x10ff, 1), Some("A.M()"));
        assert_eq!((name(0x1100, 1), name(0xfff, 1)), (None, None));
        assert_eq!(name(0x20a0, 150), Some("<dynamic method first>"));
        assert_eq!(name(0x20a0, 350), Some("<dynamic method second>"));
        assert_eq!(name(0x3000, 1), Some("<dynamic method third>"));
        assert_eq!(methods.at(0x1000, 1).and_then(|method| method.definition), None, "its module is unknown");
    }
}
