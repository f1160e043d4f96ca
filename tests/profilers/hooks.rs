//! Profilers with enter/leave hooks, for `live/hooks.rs`.

#![allow(clippy::panic, reason = "one of them is to")]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use corprof::hooks::{HookedFunctions, Precompiled};
use corprof::prelude::*;
use corprof::sys;
use windows_core::HRESULT;

/// The counts of one function.
#[derive(Default)]
struct Row {
    name: String,
    entered: AtomicU64,
    left: AtomicU64,
    tail_called: AtomicU64,
}

/// Counts every call, by function, and keeps a stack of them by thread.
#[derive(Default)]
struct Calls {
    /// Only functions whose names begin with one of these are hooked; all, if there are none.
    prefixes: Mutex<Vec<String>>,
    /// Whether the compiler may not inline them.
    is_exact: bool,
    rows: Mutex<Vec<Arc<Row>>>,
    threads_started: AtomicU64,
    threads_ended: AtomicU64,
    /// The hooks of all threads that have ended.
    hooks: AtomicU64,
    /// Functions that left and were not on the stack at their stack pointer.
    strays: AtomicU64,
    /// Threads whose state was used by another thread.
    mix_ups: AtomicU64,
}

struct Thread {
    owner: std::thread::ThreadId,
    stack: Vec<(FunctionId, usize)>,
    hooks: u64,
    mixed_up: bool,
    stray: u64,
}

impl Calls {
    fn pop(cx: &InHook<'_>, thread: &mut Thread) {
        // An exception leaves functions without a hook.
        while thread.stack.last().is_some_and(|&(_, stack_pointer)| stack_pointer < cx.stack_pointer()) {
            thread.stack.pop();
        }
        let expected = Some((cx.function(), cx.stack_pointer()));
        thread.stray += u64::from(thread.stack.pop() != expected);
        thread.count();
    }
}

impl Thread {
    fn count(&mut self) {
        self.hooks += 1;
        // Asking costs a reference count; now and then will do.
        self.mixed_up |= self.hooks % 64 == 1 && std::thread::current().id() != self.owner;
    }
}

impl FunctionHooks for Calls {
    type Function = Arc<Row>;
    type Thread = Thread;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Arc<Row>> {
        let name = cx.names().function(function).to_string();
        let prefixes = self.prefixes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !prefixes.is_empty() && !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            return Hook::No;
        }
        let row = Arc::new(Row { name, ..Row::default() });
        self.rows.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(row.clone());
        if self.is_exact { Hook::Exact(row) } else { Hook::Inlinable(row) }
    }

    fn thread_started(&self) -> Thread {
        self.threads_started.fetch_add(1, SeqCst);
        Thread { owner: std::thread::current().id(), stack: Vec::new(), hooks: 0, mixed_up: false, stray: 0 }
    }

    fn enter(&self, cx: &InHook<'_>, thread: &mut Thread, row: &Arc<Row>) {
        while thread.stack.last().is_some_and(|&(_, stack_pointer)| stack_pointer <= cx.stack_pointer()) {
            thread.stack.pop();
        }
        thread.stack.push((cx.function(), cx.stack_pointer()));
        thread.count();
        row.entered.fetch_add(1, Relaxed);
    }

    fn leave(&self, cx: &InHook<'_>, thread: &mut Thread, row: &Arc<Row>) {
        Self::pop(cx, thread);
        row.left.fetch_add(1, Relaxed);
    }

    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Thread, row: &Arc<Row>) {
        Self::pop(cx, thread);
        row.tail_called.fetch_add(1, Relaxed);
    }

    fn thread_ended(&self, thread: Thread) {
        self.threads_ended.fetch_add(1, SeqCst);
        self.hooks.fetch_add(thread.hooks, SeqCst);
        self.strays.fetch_add(thread.stray, SeqCst);
        self.mix_ups.fetch_add(u64::from(thread.mixed_up), SeqCst);
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        eprintln!("calls dropped");
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0001", no_export)]
struct CountsCalls(Arc<Calls>);

impl Calls {
    /// Sets the hooks by the variables HOOKS_SELECT, HOOKS_EXACT and HOOKS_BY.
    fn install(cx: &mut InInitialize<'_>) -> Result<(Arc<Self>, HookedFunctions)> {
        let is_exact = std::env::var_os("HOOKS_EXACT").is_some();
        let prefixes = std::env::var("HOOKS_SELECT").unwrap_or_default();
        let prefixes = prefixes.split_whitespace().map(str::to_owned).collect();
        let mut calls = Self::default();
        calls.is_exact = is_exact;
        calls.prefixes = Mutex::new(prefixes);
        let calls = Arc::new(calls);
        let setup = cx.hooks(calls.clone());
        let hooked = match std::env::var("HOOKS_BY").as_deref() {
            Ok("il") => setup.inserted(Precompiled::Keep).install()?,
            Ok("il-all") => setup.inserted(Precompiled::Compile).install()?,
            _ => setup.install()?,
        };
        Ok((calls, hooked))
    }
}

#[callbacks]
impl Callbacks for CountsCalls {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let (calls, _) = Calls::install(cx)?;
        eprintln!("again: {}", cx.hooks(Panics).install().is_err());
        Ok(Self(calls))
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        self.0.print();
    }
}

impl Calls {
    fn print(&self) {
        let calls = self;
        for row in calls.rows.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter() {
            let entered = row.entered.load(Relaxed);
            let left = row.left.load(Relaxed);
            let tail = row.tail_called.load(Relaxed);
            eprintln!("row entered={entered} left={left} tail={tail} {}", row.name);
        }
        let [started, ended, hooks, strays, mix_ups] =
            [&calls.threads_started, &calls.threads_ended, &calls.hooks, &calls.strays, &calls.mix_ups]
                .map(|count| count.load(SeqCst));
        eprintln!("threads started={started} ended={ended} hooks={hooks} strays={strays} mixups={mix_ups}");
    }
}

/// The same beside a callback of the profiler's own that allows all inlining.
#[derive(Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0006", no_export)]
struct AllowsInlining {
    calls: Arc<Calls>,
    hooked: HookedFunctions,
    asked: AtomicU64,
}

#[callbacks]
impl Callbacks for AllowsInlining {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let (calls, hooked) = Calls::install(cx)?;
        Ok(Self { calls, hooked, asked: AtomicU64::new(0) })
    }

    fn jit_inlining(&self, cx: &mut InCallback<'_>, _caller: FunctionId, callee: FunctionId) -> bool {
        let is_of_program = cx.names().function(callee).starts_with("Inlines.");
        self.asked.fetch_add(is_of_program.into(), Relaxed);
        true
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.calls.print();
        eprintln!("asked={} hooked={}", self.asked.load(Relaxed), self.hooked.hooked());
        for left_out in self.hooked.left_out() {
            eprintln!("left out: {} as {}: {}", left_out.count, cx.names().function(left_out.example), left_out.reason);
        }
    }
}

/// Panics in the hook of a method that is called `Cleanup`, which is entered on the way of an exception at times.
struct Panics;

impl FunctionHooks for Panics {
    type Function = bool;
    type Thread = ();
    const KINDS: HookKinds = HookKinds::ENTER;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<bool> {
        Hook::Inlinable(cx.names().function(function).to_string().contains("Cleanup"))
    }

    fn thread_started(&self) {}

    fn enter(&self, _cx: &InHook<'_>, _thread: &mut (), function: &bool) {
        if *function {
            panic!("in a hook");
        }
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0002", no_export)]
struct PanicsInHook;

#[callbacks]
impl Callbacks for PanicsInHook {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.hooks(Panics).install()?;
        Ok(Self)
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("shutdown of a quiet profiler");
    }
}

/// Makes calls that may let a collection in where the runtime asks whether to hook a function, beside a thread that
/// collects.
#[derive(Default)]
struct Asks {
    answered: AtomicU64,
    refused: AtomicU64,
    collections: AtomicU64,
}

impl Asks {
    fn note<T>(&self, call: &str, answer: Result<T>) {
        match answer {
            Ok(_) => _ = self.answered.fetch_add(1, Relaxed),
            Err(error) if error.code() == sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE => {
                self.refused.fetch_add(1, Relaxed);
                eprintln!("{call}: {error}");
            }
            // Not known by then: there is no code yet, or the class is an array.
            Err(_) => {}
        }
    }

    fn ask(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Result<()> {
        let info = cx.function_info(function)?;
        self.note("enum_modules", cx.enum_modules());
        self.note("enum_threads", cx.enum_threads());
        self.note("app_domains_containing_module", cx.app_domains_containing_module(info.module));
        self.note("rejit_ids", cx.rejit_ids(function));
        for code in cx.native_code(function)? {
            self.note("function_version_from_ip", cx.function_version_from_ip(code.into()));
        }
        self.note("jitted_function_versions", cx.jitted_function_versions());
        if let Some(class) = info.class {
            let class = cx.class_info(class)?;
            self.note("class_from_token", cx.class_from_token(class.module, class.token, &class.type_args));
        }
        Ok(())
    }
}

impl FunctionHooks for Asks {
    type Function = ();
    type Thread = ();
    const KINDS: HookKinds = HookKinds::ENTER;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        _ = self.ask(cx, function); // functions without metadata
        Hook::No
    }

    fn thread_started(&self) {}

    fn enter(&self, _cx: &InHook<'_>, _thread: &mut (), (): &()) {}
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0005", no_export)]
struct AsksInSelect(Arc<Asks>);

#[callbacks]
impl Callbacks for AsksInSelect {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        cx.hooks(profiler.0.clone()).install()?;
        let asks = profiler.0.clone();
        cx.spawn_profiler_thread("collects", move |cx| {
            while cx.wait(std::time::Duration::from_millis(1)).is_continue() {
                asks.collections.fetch_add(cx.force_gc().is_ok().into(), Relaxed);
            }
        })?;
        Ok(profiler)
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let Asks { answered, refused, collections } = &*self.0;
        let [answered, refused, collections] = [answered, refused, collections].map(|count| count.load(Relaxed));
        eprintln!("asked answered={answered} refused={refused} collections={collections}");
    }
}

/// Requests fast hooks while the slow path is on, and prints the refusal.
#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0003", no_export)]
struct AsksForBoth;

#[callbacks]
impl Callbacks for AsksForBoth {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::ENABLE_FUNCTION_ARGS)?;
        if let Err(error) = cx.hooks(Panics).install() {
            eprintln!("{error}");
        }
        cx.remove_events(EventMask::ENABLE_FUNCTION_ARGS)?;
        eprintln!("mask: {:?}", cx.event_mask()?);
        Ok(Self)
    }
}

/// Walks its own stack in the hooks of the method `Cleanup`, with the runtime's help.
#[derive(Default)]
struct Walks(Mutex<std::collections::HashMap<usize, String>>);

impl Walks {
    fn walk(&self, hook: &str, cx: &InHook<'_>) {
        unsafe extern "system" fn frame(
            function: usize,
            _ip: usize,
            _frame: usize,
            _size: u32,
            _context: *mut u8,
            functions: *mut std::ffi::c_void,
        ) -> HRESULT {
            // SAFETY: the pointer that `walk` passes on.
            unsafe { (*functions.cast::<Vec<usize>>()).push(function) };
            HRESULT(0)
        }
        let mut functions = Vec::<usize>::new();
        let Some(mut seed) = managed::caller(cx) else {
            eprintln!("{hook}: the stack cannot be walked up to managed code");
            return;
        };
        // SAFETY: the pointer is not kept. The calling thread is asked about, and the context is that of a function
        // that waits for this hook; the callback takes the vector that it is given.
        let code = unsafe {
            let info = cx.as_raw::<sys::ICorProfilerInfo2>().unwrap_or_else(|error| panic!("{error}"));
            info.DoStackSnapshot(
                0,
                Some(frame),
                0,
                std::ptr::from_mut(&mut functions).cast(),
                seed.0.as_mut_ptr(),
                seed.0.len() as u32,
            )
        };
        let names = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let name = |function: &usize| names.get(function).map_or("?", String::as_str);
        let stack = functions.iter().filter(|&&function| function != 0).map(name);
        let stack: Vec<_> = stack.filter(|name| !name.is_empty()).collect();
        let code = if code.0 == 0 { "S_OK".to_owned() } else { format!("{code:?}") };
        eprintln!("{hook}: {code} {}", stack.join(" < "));
    }
}

impl FunctionHooks for Walks {
    type Function = bool;
    type Thread = ();

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<bool> {
        let name = cx.names().function(function).to_string();
        let is_probe = name.contains("Cleanup");
        // The runtime's own way to `Main` is not shown.
        let name = if cx.is_runtime_entry(function) { String::new() } else { name };
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(function.as_raw(), name);
        Hook::Inlinable(is_probe)
    }

    fn thread_started(&self) {}

    fn enter(&self, cx: &InHook<'_>, _thread: &mut (), is_probe: &bool) {
        if *is_probe {
            self.walk("enter", cx);
        }
    }

    fn leave(&self, cx: &InHook<'_>, _thread: &mut (), is_probe: &bool) {
        if *is_probe {
            self.walk("leave", cx);
        }
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0004", no_export)]
struct WalksInHook;

#[callbacks]
impl Callbacks for WalksInHook {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        cx.hooks(Walks::default()).install()?;
        Ok(Self)
    }
}

/// The runtime's `CONTEXT`, where a walk is to begin.
#[repr(C, align(16))]
struct Registers([u8; 1232]);

/// From a hook up to the function that called it, by the unwind information of everything in between.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod managed {
    use std::ffi::{c_int, c_void};

    use corprof::hooks::InHook;
    use corprof::id::CodeAddress;

    use super::Registers;

    /// The number that the unwinder has for rbp, and where a `CONTEXT` has its flags (for the control and integer
    /// registers), rsp, rbp and rip.
    #[cfg(target_arch = "x86_64")]
    const PLACES: (c_int, (usize, usize), [usize; 3]) = (6, (0x30, 0x0010_0003), [0x98, 0xA0, 0xF8]);
    /// The same for x29, sp and pc.
    #[cfg(target_arch = "aarch64")]
    const PLACES: (c_int, (usize, usize), [usize; 3]) = (29, (0, 0x0040_0003), [0x100, 0xF0, 0x108]);

    struct Search<'a> {
        cx: &'a InHook<'a>,
        found: Option<Registers>,
    }

    unsafe extern "C" {
        fn _Unwind_Backtrace(trace: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int, arg: *mut c_void)
        -> c_int;
        fn _Unwind_GetIP(context: *mut c_void) -> usize;
        fn _Unwind_GetCFA(context: *mut c_void) -> usize;
        fn _Unwind_GetGR(context: *mut c_void, register: c_int) -> usize;
    }

    pub(super) fn caller(cx: &InHook<'_>) -> Option<Registers> {
        unsafe extern "C" fn look(context: *mut c_void, search: *mut c_void) -> c_int {
            let (frame_register, flags, [at_stack, at_frame, at_ip]) = PLACES;
            // SAFETY: the search that `caller` hands over, and the unwinder's context while it calls.
            let (search, ip, stack, frame) = unsafe {
                (
                    &mut *search.cast::<Search<'_>>(),
                    _Unwind_GetIP(context),
                    _Unwind_GetCFA(context),
                    _Unwind_GetGR(context, frame_register),
                )
            };
            // SAFETY: the unwinder has found a frame, whose code has run.
            let address = unsafe { CodeAddress::from_raw(ip) };
            if !matches!(search.cx.function_from_ip(address), Ok(Some(_))) {
                return 0;
            }
            let mut registers = Registers([0; 1232]);
            for (place, value) in [flags, (at_stack, stack), (at_frame, frame), (at_ip, ip)] {
                registers.0[place..place + 8].copy_from_slice(&value.to_le_bytes());
            }
            search.found = Some(registers);
            4 // Stop here.
        }
        let mut search = Search { cx, found: None };
        // SAFETY: the search outlives the call.
        unsafe { _Unwind_Backtrace(look, std::ptr::from_mut(&mut search).cast()) };
        search.found
    }
}

/// The same by the tables of Windows.
#[cfg(all(windows, target_arch = "x86_64"))]
mod managed {
    use corprof::hooks::InHook;
    use corprof::id::CodeAddress;
    use windows_sys::Win32::System::Diagnostics::Debug::{
        CONTEXT, RtlCaptureContext, RtlLookupFunctionEntry, RtlVirtualUnwind, UNW_FLAG_NHANDLER,
    };

    use super::Registers;

    /// Between a hook and its caller there are some ten functions.
    const MOST_FRAMES: usize = 100;

    pub(super) fn caller(cx: &InHook<'_>) -> Option<Registers> {
        let mut registers = Registers([0; 1232]);
        const { assert!(size_of::<Registers>() == size_of::<CONTEXT>() && align_of::<CONTEXT>() <= 16) };
        let context = registers.0.as_mut_ptr().cast::<CONTEXT>();
        // SAFETY: the structure has room and alignment for a context, and registers are plain numbers. This function
        // waits for all that is done with its own registers here, so its stack stays as it is; a function without an
        // entry has where it returns to on top of its stack. What is asked about is a frame that the system has unwound
        // to, and its code has run.
        unsafe {
            RtlCaptureContext(context);
            for _ in 0..MOST_FRAMES {
                let mut base = 0;
                let mut data = std::ptr::null_mut();
                let mut establisher = 0;
                let ip = (*context).Rip;
                let function = RtlLookupFunctionEntry(ip, &mut base, std::ptr::null_mut());
                if function.is_null() {
                    (*context).Rip = *((*context).Rsp as *const u64);
                    (*context).Rsp += 8;
                } else {
                    let history = std::ptr::null_mut();
                    RtlVirtualUnwind(
                        UNW_FLAG_NHANDLER,
                        base,
                        ip,
                        function,
                        context,
                        &mut data,
                        &mut establisher,
                        history,
                    );
                }
                let address = CodeAddress::from_raw((*context).Rip as usize);
                match cx.function_from_ip(address) {
                    Ok(Some(_)) => return Some(registers),
                    _ if (*context).Rip == 0 => return None,
                    _ => {}
                }
            }
        }
        None
    }
}

/// Not walked here.
#[cfg(not(any(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    all(windows, target_arch = "x86_64")
)))]
mod managed {
    use super::Registers;

    pub(super) fn caller(_cx: &corprof::hooks::InHook<'_>) -> Option<Registers> {
        None
    }
}

corprof::export!(CountsCalls, PanicsInHook, AsksInSelect, AsksForBoth, WalksInHook, AllowsInlining);
