//! Finds the code at the addresses of samples: the function, and the shape of its frame.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::context::InCallback;
use crate::id::{CodeAddress, FunctionId};
use crate::info::CodeRange;
use crate::profiler_thread::ProfilerThread;
use crate::system;
use crate::system::signals::RawSample;

use super::arm64::{self, Frame};
use super::call_site::follows_call;
use super::natives::Natives;
use super::precompiled::Precompiled;
use super::replaced::Beginning;
use super::shape::{BYTES, Shape, frame_size};
use super::{Code, Codes, NativeCaller, Place, unwind};

/// How long a record of code is trusted: when code is freed, other code may take its place.
const TRUST: Duration = Duration::from_secs(2);

/// How many bytes are read from an instruction on.
const NEXT: usize = if cfg!(target_arch = "aarch64") { arm64::EPILOGUE } else { 32 };

/// How many bytes are read of code that continues a loop, to find its end.
const ALL_BYTES: usize = 64 * 1024;

/// Code that has been looked up.
#[derive(Default)]
pub(crate) struct KnownCode {
    /// Ranges by their first byte.
    ranges: BTreeMap<usize, Range>,
    /// Addresses outside these.
    others: HashMap<usize, Code>,
    precompiled: Precompiled,
    /// The number of module loads and unloads before it was recorded.
    as_of: u64,
    /// The number of dynamic methods that had ended before.
    ends: u64,
    since: Option<Instant>,
}

/// A range of compiled code.
struct Range {
    end: usize,
    function: FunctionId,
    is_dynamic: bool,
    shape: Shape,
    /// Its first bytes.
    bytes: Vec<u8>,
}

/// Known code, with the means to look up the rest.
pub(crate) struct CodeLookUp<'a, 'i> {
    pub(crate) known: &'a mut KnownCode,
    pub(crate) natives: &'a RefCell<Natives>,
    pub(crate) cx: &'a mut InCallback<'i>,
}

impl CodeLookUp<'_, '_> {
    /// Calls `visit` with each frame of a recorded stack, the innermost first: its function, none for native code, and
    /// its address. Ends when `visit` says so.
    ///
    /// A dynamic method has no function either if one has ended since the sample was taken: another may be in its place
    /// by now, and have its identifier.
    pub(crate) fn walk(&mut self, sample: &RawSample, mut visit: impl FnMut(Option<FunctionId>, usize) -> bool) {
        let liveness = Arc::clone(self.cx.liveness());
        let is_still = |function: &FunctionId| liveness.is_still(*function, sample.ticks);
        unwind(sample, self, |function, ip| visit(function.filter(is_still), ip));
    }
}

impl KnownCode {
    /// Call it before each round: removes records that may have changed.
    pub(crate) fn refresh(&mut self, cx: &ProfilerThread<'_>) {
        let changes = cx.liveness().changes();
        if changes != self.as_of {
            self.precompiled = Precompiled::default();
        }
        if changes != self.as_of || self.since.is_none_or(|since| since.elapsed() > TRUST) {
            self.ranges.clear();
            self.others.clear();
            self.as_of = changes;
            self.since = Some(Instant::now());
        }
        let ends = cx.liveness().dynamic_methods_ended();
        if ends != self.ends {
            self.ranges.retain(|_, range| !range.is_dynamic);
            self.others.clear();
            self.ends = ends;
        }
    }

    fn range(&self, address: usize) -> Option<(usize, &Range)> {
        let (&start, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end).then_some((start, range))
    }

    /// What was looked up at an address.
    fn recorded(&self, address: usize) -> Option<Code> {
        self.range(address).map(|(_, range)| range.code()).or_else(|| self.others.get(&address).copied())
    }

    /// The known code at an address.
    #[cfg(feature = "testing")]
    pub(super) fn code(&self, address: usize) -> Option<Code> {
        self.range(address).map(|(_, range)| range.code())
    }

    /// The shape of a known function's frame at `ip`, if it is not made yet or already gone there.
    pub(super) fn incomplete(&self, ip: usize) -> Option<Shape> {
        let (start, range) = self.range(ip)?;
        let offset = ip - start;
        let size = range.end - start;
        // On arm64 also some before.
        let back = if cfg!(target_arch = "aarch64") { arm64::BEFORE.min(offset) } else { 0 };
        let place = offset - back..(offset + NEXT).min(size);
        let read_now;
        let near = match range.bytes.get(place.clone()) {
            Some(known) => known,
            None => {
                read_now = read(start + place.start, place.len());
                &read_now
            }
        };
        let (before, next) = near.split_at_checked(back)?;
        if let Shape::OnArm64(frame) = range.shape {
            return frame.incomplete(&range.bytes, size, offset, before, next).map(Shape::OnArm64);
        }
        Shape::incomplete(&range.bytes, size, offset, next)
    }

    /// Records the code of the function at an address.
    fn record(&mut self, cx: &mut InCallback<'_>, address: usize) -> Code {
        // While the runtime starts it does not answer, and there is no code to find.
        // SAFETY: the thread was interrupted in this code; or there is a call before the address, and the walk has come
        // to it by what is known of each frame, so that it has run; or the runtime has compiled it, or finds a method
        // before it that has run (fact: addresses).
        let code_address = unsafe { CodeAddress::from_raw(address) };
        let version = cx.function_version_from_ip(code_address).ok().flatten();
        let Some(version) = version else { return Code::default() };
        let function = version.function;
        let is_dynamic = cx.liveness().is_watched(function);
        let codes = cx.native_code(version).unwrap_or_default();
        let codes: Vec<_> =
            codes.into_iter().map(|code| cx.native_code_ranges(code).unwrap_or_default()).map(with_bytes).collect();
        let originals: Vec<_> = codes.iter().filter_map(|(_, bytes)| own_size(bytes)).collect();
        for (ranges, mut bytes) in codes {
            if let Some(first) = ranges.first() {
                self.precompiled.has_run(first.start, || cx.older_code_address(first.start).is_some());
            }
            let shape = ranges.first().map_or(Shape::default(), |first| shape(first, &bytes, &originals));
            for range in ranges {
                // A second part of a function uses the frame that the first has made.
                let bytes = std::mem::take(&mut bytes);
                self.ranges
                    .insert(range.start, Range { end: range.start + range.size, function, is_dynamic, shape, bytes });
            }
        }
        self.range(address).map_or(Code { function: Some(function), ..Code::default() }, |(_, range)| range.code())
    }
}

/// The ranges of a function's code, with the first bytes of the first one.
fn with_bytes(ranges: Vec<CodeRange>) -> (Vec<CodeRange>, Vec<u8>) {
    let bytes = ranges.first().map(|first| read(first.start, BYTES.min(first.size)));
    (ranges, bytes.unwrap_or_default())
}

/// The size of the frame that code makes, if that is known.
fn own_size(bytes: &[u8]) -> Option<usize> {
    if cfg!(target_arch = "aarch64") { Some(Frame::whole(bytes)) } else { frame_size(bytes) }
}

/// The shape of a function, given its first range and the first bytes of it.
fn shape(first: &CodeRange, bytes: &[u8], originals: &[usize]) -> Shape {
    if bytes.is_empty() {
        return Shape::default();
    }
    let all = || read(first.start, ALL_BYTES.min(first.size));
    if cfg!(target_arch = "aarch64") {
        let Some(frame) = Frame::of(bytes) else { return Shape::default() };
        // Only what is compiled more than once may continue the loop of another.
        let more = if originals.len() > 1 { Frame::continued(&all(), originals) } else { None };
        return Shape::OnArm64(Frame { size: frame.size + more.unwrap_or_default(), ..frame });
    }
    match Beginning::of(bytes) {
        Some(beginning) => Shape::Replaced { size: beginning.size(&all(), originals) },
        None => Shape::of(bytes),
    }
}

impl Range {
    fn code(&self) -> Code {
        Code { function: Some(self.function), shape: self.shape }
    }
}

/// Up to `size` bytes of code; empty if they cannot be read.
fn read(start: usize, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    if !system::read_memory(start, &mut bytes) {
        bytes.clear();
    }
    bytes
}

impl Codes for CodeLookUp<'_, '_> {
    fn at(&mut self, address: usize) -> Code {
        if let Some(code) = self.known.recorded(address) {
            return code;
        }
        let code = self.known.record(self.cx, address);
        if self.known.range(address).is_none() {
            self.known.others.insert(address, code);
        }
        code
    }

    /// Where a frame is not followed rightly the word is any other from the stack. It may lead into precompiled code
    /// that has not run: the entry of a method that a thread is about to call, or two numbers side by side. The runtime
    /// would search for a method that has run from there on downward, and in a library without any beyond its table.
    /// Only return addresses have a call before them.
    fn returned_to(&mut self, place: Place) -> Code {
        let address = place.ip.wrapping_sub(1);
        if let Some(code) = self.known.recorded(address) {
            return code;
        }
        if !follows_call(place.ip) {
            self.known.others.insert(address, Code::default());
            return Code::default();
        }
        let may_ask =
            place.is_certain || self.is_compiled(address) || self.known.precompiled.is_after_code_that_has_run(address);
        if !may_ask {
            return Code::default();
        }
        self.at(address)
    }

    fn incomplete(&mut self, ip: usize) -> Option<Shape> {
        self.known.incomplete(ip)
    }

    fn is_compiled(&mut self, address: usize) -> bool {
        self.cx.older_code_address(address).is_some()
    }

    fn native_caller(&mut self, sample: &RawSample, here: Place, is_top: bool) -> NativeCaller {
        self.natives.borrow_mut().caller(sample, here, is_top)
    }
}
