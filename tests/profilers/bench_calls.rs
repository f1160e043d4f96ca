//! Takes turns with calls written in C (bench/calls.c): `cargo xtask bench` measures the cost of corprof's forms of
//! them.
//!
//! `BENCH_CALLS` names the library in C. The time of each slice is printed at Shutdown: `NAME CALLS NANOSECONDS-IN-C
//! NANOSECONDS-IN-CORPROF`. That both sides got the same answers is checked in each slice, and a panic if not; of
//! names, that they are the same text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how it fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corprof::id::CodeAddress;
use corprof::metadata::TypeDef;
use corprof::metadata::signature::{MethodSignature, Type};
use corprof::prelude::*;
use libloading::Library;

/// Counts the allocations of the measuring thread, outside of the timed part: the profiler in C has no such count.
struct Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_COUNTING.load(Relaxed) {
            // A thread that is ending is none that measures.
            let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        }
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: both pointers are passed on unchanged; the second came from `alloc`.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many calls a slice is: some tenths of a millisecond, shorter than a turn on a busy processor.
const CALLS: usize = 2000;
const SLICES: usize = 100;
/// How many functions are asked about.
const FUNCTIONS: usize = 4;
/// How many names a slice of misses is.
const NAMES: usize = 16;

type Repeated = unsafe extern "C" fn(*mut c_void, *const usize, usize) -> usize;
type NameCalls = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> usize;
type NameOf = unsafe extern "C" fn(*mut c_void, usize) -> usize;
type KeepImport = unsafe extern "C" fn(usize, *mut c_void) -> c_int;
type KnownName = unsafe extern "C" fn(usize) -> *const c_char;

/// The calls in C.
struct InC {
    function_from_ip: Repeated,
    function_info: Repeated,
    class_from_object: Repeated,
    name_calls: NameCalls,
    name_of: NameOf,
    keep_import: KeepImport,
    known_name: KnownName,
}

impl InC {
    fn load() -> Self {
        let path = std::env::var_os("BENCH_CALLS").unwrap();
        // SAFETY: the library has nothing that runs when it is loaded, and its functions have these types. It stays
        // loaded.
        unsafe {
            let library: &'static Library = Box::leak(Box::new(Library::new(path).unwrap()));
            let repeated = |name: &str| *library.get::<Repeated>(name).unwrap();
            Self {
                function_from_ip: repeated("function_from_ip"),
                function_info: repeated("function_info"),
                class_from_object: repeated("class_from_object"),
                name_calls: *library.get::<NameCalls>("name_calls").unwrap(),
                name_of: *library.get::<NameOf>("name_of").unwrap(),
                keep_import: *library.get::<KeepImport>("keep_import").unwrap(),
                known_name: *library.get::<KnownName>("known_name").unwrap(),
            }
        }
    }

    /// The runtime's interface, as C takes it.
    fn info(info: &Info) -> *mut c_void {
        // SAFETY: it is kept for the length of a call only.
        windows_core::Interface::as_raw(unsafe { info.as_raw::<corprof::sys::ICorProfilerInfo>() }.unwrap())
    }
}

#[derive(Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E03")]
struct Calls {
    in_c: InC,
    core: Mutex<Option<ModuleId>>,
    /// How many functions have been compiled.
    compiled: AtomicUsize,
    /// The times of slices.
    told: Mutex<String>,
    /// How many slices of objects there have been.
    slices: Mutex<usize>,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            in_c: InC::load(),
            core: Mutex::default(),
            compiled: AtomicUsize::default(),
            told: Mutex::default(),
            slices: Mutex::default(),
        }
    }
}

/// How often `work` allocates.
fn allocations<R>(work: impl FnOnce() -> R) -> u64 {
    let before = ALLOCATIONS.get();
    IS_COUNTING.store(true, Relaxed);
    black_box(work());
    IS_COUNTING.store(false, Relaxed);
    ALLOCATIONS.get() - before
}

fn timed<R>(work: impl FnOnce() -> R) -> (Duration, R) {
    let start = Instant::now();
    let answer = black_box(work());
    (start.elapsed(), answer)
}

impl Calls {
    /// Both sides; the first changes from turn to turn.
    fn slice(&self, name: &str, at: usize, calls: usize, c: impl FnOnce() -> usize, corprof: impl FnOnce() -> usize) {
        let ((c, expected), (corprof, answered)) = if at.is_multiple_of(2) {
            let c = timed(c);
            (c, timed(corprof))
        } else {
            let corprof = timed(corprof);
            (timed(c), corprof)
        };
        assert_eq!(answered, expected, "{name}");
        self.tell(name, calls, c, corprof);
    }

    fn tell(&self, name: &str, calls: usize, c: Duration, corprof: Duration) {
        writeln!(self.told.lock().unwrap(), "{name} {calls} {} {}", c.as_nanos(), corprof.as_nanos()).unwrap();
    }

    /// Calls about functions. It measures in an ordinary callback: `shutdown` is outside of the gate, which some calls
    /// ask.
    fn functions(&self, cx: &InNoGc<'_>) {
        let functions: Vec<FunctionId> = cx.jitted_functions().unwrap();

        let cycled: Vec<FunctionId> = functions.iter().copied().take(FUNCTIONS).cycle().take(CALLS).collect();
        let ips: Vec<CodeAddress> =
            cycled.iter().map(|&function| cx.native_code(function).unwrap()[0].into()).collect();
        let ids: Vec<usize> = cycled.iter().map(|function| function.as_raw()).collect();
        let info = InC::info(cx);
        for at in 0..SLICES {
            self.slice(
                "FunctionFromIP",
                at,
                CALLS,
                // SAFETY: asks as corprof does; the array has this many elements.
                || unsafe { (self.in_c.function_from_ip)(info, ips.as_ptr().cast(), CALLS) },
                || ips.iter().fold(0, |sum, &ip| sum.wrapping_add(cx.function_from_ip(ip).unwrap().unwrap().as_raw())),
            );
            self.slice(
                "FunctionInfo",
                at,
                CALLS,
                // SAFETY: as above.
                || unsafe { (self.in_c.function_info)(info, ids.as_ptr(), CALLS) },
                || {
                    cycled.iter().fold(0, |sum, &function| {
                        let info = cx.function_info(function).unwrap();
                        let ids = info.class.map_or(0, ClassId::as_raw).wrapping_add(info.module.as_raw());
                        sum.wrapping_add(ids).wrapping_add(info.token.as_raw() as usize + info.type_args.len())
                    })
                },
            );
        }
    }

    /// Functions whose names the four calls of bench/calls.c are enough for, each of another class: that is neither
    /// generic nor nested, and the parameters are of no class that has to be asked about.
    fn simple_functions(cx: &InNoGc<'_>, core: ModuleId) -> Vec<FunctionId> {
        fn is_simple_type(of: &Type) -> bool {
            match of {
                Type::Primitive(_) => true,
                Type::Pointer(inner) | Type::ByRef(inner) | Type::SzArray(inner) => is_simple_type(inner),
                _ => false,
            }
        }
        let import = cx.metadata(core).unwrap();
        let simple = |class: &TypeDef| {
            import.enclosing_class(*class) == Ok(None) && import.generic_params(*class).is_ok_and(|all| all.is_empty())
        };
        let function = |class: TypeDef| {
            import.methods(class).unwrap().into_iter().find_map(|method| {
                let signature = MethodSignature::decode(&import.method(method).unwrap().signature).unwrap();
                let mut types = signature.parameters.iter().chain([&signature.return_type]);
                let is_simple = signature.generic_parameters == 0 && types.all(is_simple_type);
                let function = is_simple.then(|| cx.function_from_token(core, method).ok()).flatten()?;
                cx.function_info(function).unwrap().class.map(|_| function)
            })
        };
        import.type_defs().unwrap().into_iter().filter(simple).filter_map(function).collect()
    }

    /// Names that are looked up for the first time, on both sides, beside the calls alone.
    fn misses(&self, cx: &InNoGc<'_>, core: ModuleId) {
        let info = InC::info(cx);
        let in_c = &self.in_c;
        let simple = Self::simple_functions(cx, core);
        let metadata = cx.metadata(core).unwrap();
        // SAFETY: it is kept for the length of this callback, in which the module stays.
        let import = windows_core::Interface::as_raw(unsafe { metadata.as_raw() });
        // The module's metadata is looked up once, on either side.
        cx.names().function(simple[0]);
        // SAFETY: as above; it is used during this callback only.
        assert_ne!(unsafe { (in_c.keep_import)(core.as_raw(), import) }, 0);
        let signature = |function| metadata.method(cx.function_info(function).unwrap().token).unwrap().signature;
        let mut slices = simple[1..].chunks_exact(NAMES);
        let counted = slices.next().unwrap();
        let allocated = allocations(|| counted.iter().for_each(|&function| drop(cx.names().function(function))));
        for (at, functions) in slices.enumerate() {
            let calls = || {
                // SAFETY: asks as corprof does, about this module's functions.
                let each = |function: &FunctionId| unsafe { (in_c.name_calls)(info, import, function.as_raw()) };
                functions.iter().map(each).sum::<usize>()
            };
            let c = || {
                // SAFETY: as above.
                let each = |function: &FunctionId| unsafe { (in_c.name_of)(info, function.as_raw()) };
                functions.iter().map(each).sum::<usize>()
            };
            let corprof =
                || functions.iter().map(|&function| cx.names().function(function).as_str().len()).sum::<usize>();
            // So that no side loads the metadata into the processor's cache for the other.
            black_box(calls());
            functions.iter().for_each(|&function| drop(black_box(signature(function))));
            let mut took = [Duration::ZERO; 3];
            let mut lengths = [0; 3];
            for turn in at..at + 3 {
                let side = turn % 3;
                (took[side], lengths[side]) = match side {
                    0 => timed(calls),
                    1 => timed(c),
                    _ => timed(corprof),
                };
            }
            assert_eq!(lengths[1], lengths[2], "a name that misses");
            for &function in functions {
                // SAFETY: a text with a NUL behind it, which C does not let go.
                let in_c = unsafe { CStr::from_ptr((in_c.known_name)(function.as_raw())) };
                assert_eq!(in_c.to_str(), Ok(cx.names().function(function).as_str()));
            }
            let [calls, c, corprof] = took;
            self.tell("name that misses", NAMES, c, corprof);
            self.tell("calls of a name that misses", NAMES, calls, corprof);
        }
        eprintln!("allocations of misses {allocated} {NAMES}");
    }
}

#[callbacks]
impl Callbacks for Calls {
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        if cx.module_info(module).unwrap().path.contains("System.Private.CoreLib") {
            *self.core.lock().unwrap() = Some(module);
        }
    }

    fn jit_compilation_finished(&self, cx: &mut InCallback<'_>, _: FunctionId, _status: Result<()>, _: bool) {
        if self.compiled.fetch_add(1, Relaxed) + 1 == FUNCTIONS {
            self.functions(cx);
        }
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, _class: ClassId) {
        let mut slices = self.slices.lock().unwrap();
        if *slices == SLICES {
            return;
        }
        *slices += 1;
        let ids = black_box([object; CALLS]);
        let objects = [object.as_raw(); CALLS];
        self.slice(
            "ClassFromObject",
            *slices,
            CALLS,
            // SAFETY: in the callback of this object, about which it asks as corprof does.
            || unsafe { (self.in_c.class_from_object)(InC::info(cx), objects.as_ptr(), CALLS) },
            || ids.iter().map(|&id| cx.class_of(id).unwrap().as_raw()).fold(0, usize::wrapping_add),
        );
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let cx: &InNoGc<'_> = cx;
        let core = self.core.lock().unwrap().unwrap();
        let functions: Vec<FunctionId> = cx.jitted_functions().unwrap();
        let cycled: Vec<FunctionId> = functions.iter().copied().take(FUNCTIONS).cycle().take(CALLS).collect();

        self.misses(cx, core);

        let mut hits = [Duration::ZERO; SLICES];
        for hit in &mut hits {
            let names = || cycled.iter().map(|&function| cx.names().function(function).as_str().len()).sum::<usize>();
            *hit = timed(names).0;
        }
        let allocated = allocations(|| cycled.iter().for_each(|&function| drop(cx.names().function(function))));
        let mut told = self.told.lock().unwrap();
        // The first slice had to find them out.
        for hit in &hits[1..] {
            writeln!(told, "name that hits {CALLS} {}", hit.as_nanos()).unwrap();
        }
        eprintln!("{told}allocations of hits {allocated}");
    }
}
