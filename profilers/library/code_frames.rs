//! What profilers with stacks share: frames that know where they are in the source.
//!
//! The place is taken while the method is certainly there: its module, its token, and the offset in its IL, by the
//! runtime's map of the native code. File and line are read later, from the PDB beside the module or in it, because
//! reading takes milliseconds. Where the runtime has no map, or there is no PDB, a frame is its name alone.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use corprof::info::{IlOffset, IlToNativeRange};
use corprof::prelude::*;
use corprof::sync::Mutex;
use corprof_export::{Profile, SourceLines};
use corprof_heap::Class;
use corprof_heap::report::Names;
use corprof_profilers::settings::Settings;
use serde::Serialize;

/// The most places that are remembered. Code that is compiled again and again would have more and more.
const MOST: usize = 100_000;

/// A managed frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodeFrame {
    /// The method, as C# spells it.
    pub(crate) name: Name,
    place: Option<Arc<IlPlace>>,
    spelling: Spelling,
}

/// How answers spell methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Spelling {
    /// As they were written.
    #[default]
    Source,
    /// As the runtime has them.
    Raw,
}

impl Spelling {
    pub(crate) fn of(settings: &Settings) -> Self {
        if settings.has_raw_names() { Self::Raw } else { Self::Source }
    }

    /// The method of this name as it is shown. `caller` has called it.
    pub(crate) fn method(self, name: &str, caller: Option<&str>) -> String {
        match self {
            Self::Source => corprof_export::in_source(name, caller),
            Self::Raw => name.to_owned(),
        }
    }

    /// The methods of these names, the innermost first, as they are shown.
    pub(crate) fn methods(self, names: &[Name]) -> Vec<String> {
        let callers = names.iter().skip(1).map(|name| Some(&**name)).chain([None]);
        names.iter().zip(callers).map(|(name, caller)| self.method(name, caller)).collect()
    }

    /// A class as it is shown; `method` tells for what a compiler has made it, or is empty.
    pub(crate) fn class(self, name: &str, method: &str) -> String {
        match self {
            Self::Source => corprof_export::class_in_source(name, method),
            Self::Raw => name.to_owned(),
        }
    }

    /// How a report about a heap with these classes names them.
    pub(crate) fn of_heap(self, classes: &[Class]) -> Names {
        let spelled = |class: &Class| corprof_export::class_in_source(&class.name, &class.method);
        match self {
            Self::Source => Names::of(classes, spelled, corprof_export::field_in_source),
            Self::Raw => Names::default(),
        }
    }

    /// A profile whose files have these names.
    pub(crate) fn profile(self, profile: Profile) -> Profile {
        if self == Self::Raw { profile.with_raw_names() } else { profile }
    }
}

/// A place in the IL of a method. It stays true when the module is unloaded.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct IlPlace {
    pub(crate) module: String,
    pub(crate) token: u32,
    pub(crate) offset: u32,
}

/// A frame as an answer shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct SourceFrame {
    pub(crate) method: String,
    /// The path of the source, as its compiler was told it.
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// A thread and its stack, the innermost frame first, as an answer shows them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SourceStack {
    /// The system's number of the thread.
    pub(crate) thread: Option<u32>,
    pub(crate) name: Option<String>,
    pub(crate) frames: Vec<SourceFrame>,
}

/// Finds the places of frames, and remembers them.
#[derive(Default)]
pub(crate) struct CodeFrames {
    known: Mutex<HashMap<(FunctionId, usize), CodeFrame>>,
    spelling: Spelling,
}

impl CodeFrames {
    /// Those that are shown in this spelling.
    pub(crate) fn spelt(spelling: Spelling) -> Self {
        Self { spelling, ..Self::default() }
    }

    /// A frame of which only the name is known.
    pub(crate) fn named(&self, name: Name) -> CodeFrame {
        CodeFrame::named(name, self.spelling)
    }

    /// The frame of a function. `ip` is the address in its code, for a caller the return address.
    pub(crate) fn frame(&self, cx: &InNoGc<'_>, function: FunctionId, ip: usize, is_leaf: bool) -> CodeFrame {
        let name = cx.names().csharp().function(function);
        // A return address is that of the next statement if the call was the last of its own.
        let address = ip.saturating_sub(usize::from(!is_leaf));
        let key = (function, address);
        // After an unload, another method may have the same id.
        let known = self.known.lock(cx).get(&key).filter(|known| known.name == name).cloned();
        if let Some(known) = known {
            return known;
        }
        let place = IlPlace::of_address(cx, function, address).map(Arc::new);
        let frame = CodeFrame { name, place, spelling: self.spelling };
        let mut known = self.known.lock(cx);
        if known.len() >= MOST {
            known.clear(); // the places of now are asked for again, and those of long ago are not
        }
        known.insert(key, frame.clone());
        frame
    }
}

impl IlPlace {
    /// Its file and line. This reads files.
    pub(crate) fn in_source<'a>(&self, lines: &'a mut SourceLines) -> Option<(&'a str, u32)> {
        lines.of_offset(Path::new(&self.module), self.token, self.offset)
    }

    /// The place of an address in the code of a function.
    pub(crate) fn of_address(cx: &InNoGc<'_>, function: FunctionId, address: usize) -> Option<Self> {
        let info = cx.function_info(function).ok().filter(|info| !info.token.is_nil())?;
        let codes = cx.native_code(function).ok()?;
        // A function has several pieces of code if the runtime compiles in tiers.
        let code = codes.into_iter().filter(|code| code.as_raw() <= address).max_by_key(|code| code.as_raw())?;
        let native = u32::try_from(address - code.as_raw()).ok()?;
        let offset = il_offset(&cx.il_to_native_mapping(code).ok()?, native)?;
        let module = cx.module_info(info.module).ok()?.path;
        Some(Self { module, token: info.token.as_raw(), offset })
    }
}

/// The IL offset of an offset in native code; none outside of the code that the map is about.
fn il_offset(map: &[IlToNativeRange], native: u32) -> Option<u32> {
    if !map.iter().any(|range| native < range.native_end) {
        return None;
    }
    let before = map.iter().filter(|range| range.native_start <= native);
    // What belongs to no instruction belongs to the one before it.
    let instructions = before.filter_map(|range| match range.il {
        IlOffset::At(offset) => Some((range.native_start, offset)),
        IlOffset::Prolog => Some((range.native_start, 0)),
        _ => None,
    });
    instructions.max().map(|(_, offset)| offset)
}

impl CodeFrame {
    /// A frame of which only the name is known.
    pub(crate) fn named(name: Name, spelling: Spelling) -> Self {
        Self { name, place: None, spelling }
    }

    pub(crate) fn spelling(&self) -> Spelling {
        self.spelling
    }

    /// The name that is shown. `caller` has called it.
    pub(crate) fn shown(&self, caller: Option<&Self>) -> String {
        self.spelling.method(&self.name, caller.map(|caller| &*caller.name))
    }

    /// Where it is in the IL, if that is known.
    pub(crate) fn place(&self) -> Option<Arc<IlPlace>> {
        self.place.clone()
    }

    /// The frame with its file and line. This reads files.
    pub(crate) fn in_source(&self, caller: Option<&Self>, lines: &mut SourceLines) -> SourceFrame {
        let place = self.place.as_deref();
        let found = place.and_then(|place| place.in_source(lines));
        let (file, line) = found.unzip();
        SourceFrame { method: self.shown(caller), file: file.map(str::to_owned), line }
    }
}

/// The innermost frames of a stack, at most so many, with their files and lines. This reads files.
pub(crate) fn in_source(frames: &[CodeFrame], depth: usize, lines: &mut SourceLines) -> Vec<SourceFrame> {
    let callers = frames.iter().skip(1).map(Some).chain([None]);
    frames.iter().zip(callers).take(depth).map(|(frame, caller)| frame.in_source(caller, lines)).collect()
}

/// The method of a frame of a stack, as it is shown.
pub(crate) fn shown(frames: &[CodeFrame], frame: usize) -> Option<String> {
    Some(frames.get(frame)?.shown(frames.get(frame + 1)))
}

/// As `Shop.Orders.Save() in Orders.cs:41`.
impl fmt::Display for SourceFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.method)?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " in {}:{line}", file.rsplit(['/', '\\']).next().unwrap_or(file)),
            _ => Ok(()),
        }
    }
}
