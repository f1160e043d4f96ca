//! The methods of a process, by the addresses of their code, from the events of a rundown and of code that comes and
//! goes. `spelling` writes their names as corprof's profilers do.

mod spelling;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use corprof_nettrace::events::universal::ProcessSymbol;
use corprof_nettrace::events::views::{ModuleDCEnd, ModuleLoad};
use corprof_nettrace::events::{Event, Value};

pub(crate) use spelling::of_perf_map;

/// Keywords of a rundown that has all of this at the end of a session: modules and methods, compiled now or before.
pub(crate) const RUNDOWN: u64 = 0x8 | 0x10 | 0x20 | 0x100;
/// Also where in its IL each piece of compiled code is.
pub(crate) const RUNDOWN_WITH_IL: u64 = RUNDOWN | 0x20000;

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
    /// By the number of the method and that of its code: offsets in the code, each with one in the IL.
    il: HashMap<(u64, u64), Vec<(u32, u32)>>,
}

/// The least of the numbers that stand for no offset in the IL: a prolog, an epilog, or nothing.
const NO_IL: u32 = 0xFFFF_FFFD;

/// The code of a method.
#[derive(Debug)]
struct Code {
    id: u64,
    /// Tells it from other code of the method.
    version: u64,
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
    /// The offset of the address in the method's code.
    pub(crate) offset: u64,
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
        } else if name == "MethodDCEndILToNativeMap" || name == "MethodILToNativeMap" {
            self.map(event);
        } else if let Ok(module) = event.decode::<ModuleDCEnd<'_>>() {
            self.modules.insert(module.module_id, module.il_path.to_string().into());
        } else if let Ok(module) = event.decode::<ModuleLoad<'_>>() {
            self.modules.insert(module.module_id, module.il_path.to_string().into());
        }
        Change::None
    }

    /// Takes code of a recording, which has a name only.
    pub(crate) fn symbol(&mut self, symbol: &ProcessSymbol<'_>) {
        let size = symbol.end_address.saturating_sub(symbol.start_address).saturating_add(1);
        let name = symbol.name.to_string();
        let code = Code { id: symbol.id, version: 0, size, from: 0, to: u64::MAX, module: 0, token: 0, name };
        self.code.entry(symbol.start_address).or_default().push(code);
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
        let version = number("ReJITID").unwrap_or_default();
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
        at_start.push(Code { id, version, size, from, to, module, token, name });
    }

    fn map(&mut self, event: &Event<'_>) {
        let number = |field| event.field(field).and_then(Value::as_u64);
        let (Some(id), Some(version)) = (number("MethodID"), number("ReJITID")) else { return };
        let offsets = |field| {
            let list = event.field(field).and_then(|value| value.as_list());
            let numbers = list.into_iter().flat_map(|list| list.iter().filter_map(Value::as_u64).collect::<Vec<_>>());
            numbers.map(|number| u32::try_from(number).unwrap_or(u32::MAX))
        };
        self.il.insert((id, version), offsets("NativeOffsets").zip(offsets("ILOffsets")).collect());
    }

    /// The offsets in the method's IL that the code at this address belongs to: usually one, none if that is not known.
    /// The compiler writes no entry where the one before has the same offset.
    pub(crate) fn il_offsets(&self, address: u64, ticks: u64) -> Vec<u32> {
        let Some((start, code)) = self.code_at(address, ticks) else { return Vec::new() };
        let map = self.il.get(&(code.id, code.version)).map(Vec::as_slice).unwrap_or_default();
        let before = map.iter().map(|(native, _)| *native).filter(|native| u64::from(*native) <= address - start).max();
        let here = map.iter().filter(|(native, il)| Some(*native) == before && *il < NO_IL);
        here.map(|(_, il)| *il).collect()
    }

    /// The code that was at an address at that time, and where it begins.
    fn code_at(&self, address: u64, ticks: u64) -> Option<(u64, &Code)> {
        let before = self.code.range(..=address).rev().take(MOST_BEFORE);
        let codes = before.flat_map(|(start, codes)| codes.iter().rev().map(move |code| (start, code)));
        let mut codes = codes.filter(|(start, code)| address - *start < code.size);
        // What the runtime says of the time comes a little late.
        let first = codes.clone().next();
        let (start, code) = codes.find(|(_, code)| (code.from..code.to).contains(&ticks)).or(first)?;
        Some((*start, code))
    }

    /// The runtime's number of the method whose code was at an address at that time, and its name.
    pub(crate) fn id_and_name(&self, address: u64, ticks: u64) -> Option<(u64, String)> {
        let (_, code) = self.code_at(address, ticks)?;
        Some((code.id, code.name.clone()))
    }

    /// The method whose code was at an address at that time.
    pub(crate) fn at(&self, address: u64, ticks: u64) -> Option<Method<'_>> {
        let (start, code) = self.code_at(address, ticks)?;
        let module = self.modules.get(&code.module).filter(|_| code.token != 0);
        let definition = module.filter(|path| !path.as_os_str().is_empty()).map(|path| (path.as_path(), code.token));
        Some(Method { name: &code.name, definition, offset: address - start })
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

    #[test]
    fn an_address_belongs_to_the_il_of_the_entry_before() {
        let mut methods = Methods::default();
        let known = payload(1, 0x1000, 0x0600_0001, 0, ["A", "M", "void  ()"]);
        add(&mut methods, Provider::RUNDOWN, 144, 900, &known);
        // Two bodies have maps; this is that of the first one.
        for (version, il) in [(0, [u32::MAX - 1, 7, 40, u32::MAX]), (9, [1; 4])] {
            let mut map = [1_u64, version].map(u64::to_le_bytes).concat();
            map.extend([0, 4, 0]);
            map.extend(il.map(u32::to_le_bytes).concat());
            map.extend([0, 0x20, 0x30, 0x80_u32].map(u32::to_le_bytes).concat());
            map.extend([0; 10]);
            methods.event(&Event::new(Provider::RUNDOWN, 150, 1, &map, true), 900);
        }
        let il = |address| methods.il_offsets(address, 900);
        assert_eq!((il(0x1000), il(0x1020), il(0x102f)), (vec![], vec![7], vec![7]));
        assert_eq!((il(0x1030), il(0x107f), il(0x1080), il(0x1100)), (vec![40], vec![40], vec![], vec![]));
    }
}
