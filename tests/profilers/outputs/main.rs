//! Makes the runtime's calls with marked bytes around the places for their answers, and reads blobs in place while
//! other threads add to the metadata: for `live/outputs.rs`.

mod info;
mod marks;
mod metadata;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corprof::metadata::{MethodDef, TypeDef};
use corprof::prelude::*;

use marks::Report;

/// How many functions are asked about.
const FUNCTIONS: usize = 60;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2401", no_export)]
struct Outputs {
    report: Mutex<Report>,
    functions: Mutex<Vec<FunctionId>>,
    class: Mutex<Option<ClassId>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn expect<E: std::fmt::Display>(what: &str, done: Result<(), E>) {
    if let Err(error) = done {
        eprintln!("outputs| WRONG {what}: {error}");
    }
}

impl Outputs {
    fn ask_all(&self, cx: &mut InCallback<'_>) -> Result<()> {
        let Some(class) = *lock(&self.class) else { return Ok(()) };
        let mut report = lock(&self.report);
        info::ask_functions(&mut report, cx, &lock(&self.functions))?;
        let found = cx.class_info(class)?;
        let method = {
            let import = cx.metadata(found.module)?;
            metadata::ask(&mut report, &import)?;
            import.methods(found.token)?.first().map_or(0, |method: &MethodDef| method.as_raw())
        };
        info::ask(&mut report, cx, found.module, class, method)
    }
}

#[callbacks]
impl Callbacks for Outputs {
    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        let name = cx.names().class(class);
        if name.starts_with("Facts.Known<") || name.as_str() == "Holder" {
            lock(&self.class).get_or_insert(class);
        }
    }

    fn jit_compilation_finished(
        &self,
        _cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        let mut functions = lock(&self.functions);
        if functions.len() < FUNCTIONS {
            functions.push(function);
        }
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) {
        if cx.array_class(class).is_ok_and(|array| array.is_some_and(|array| array.rank == 2)) {
            expect("an array", info::ask_array(&mut lock(&self.report), cx, object));
        } else if cx.names().class(class).as_str() == "Pair" {
            expect("an object", info::ask_object(&mut lock(&self.report), cx, object));
        }
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        expect("an exception", info::ask_object(&mut lock(&self.report), cx, thrown));
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        expect("the end", self.ask_all(cx));
        lock(&self.report).tell();
    }
}

/// How many rows the thread adds that adds.
const ADDED: u32 = 2000;
/// After how many rows it waits until the thread that reads has read them all once more: on a busy machine that one may
/// otherwise not run before everything is added.
const ADDED_A_ROUND: u32 = 100;

/// Reads blobs in place, and the metadata by corprof, while another thread adds to them.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2402", no_export)]
struct Emits {
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    is_done: AtomicBool,
    added: AtomicU64,
    compared: AtomicU64,
    wrong: AtomicU64,
}

/// A blob as the metadata returned it, and a copy of its bytes.
struct Seen {
    start: usize,
    bytes: Vec<u8>,
}

impl Counts {
    fn add(&self, cx: &InNoGc<'_>, module: ModuleId, rounds: &Receiver<()>) -> Result<()> {
        let emit = cx.metadata_emit(module)?;
        for number in 0..ADDED {
            if number % ADDED_A_ROUND == 0 {
                while rounds.try_recv().is_ok() {}
                // An error means that the reader has ended, and has said why.
                let _ = rounds.recv();
            }
            emit.define_user_string(&format!("added {number}"))?;
            // One more local variable each time, of a type by turns, so that no two signatures are the same.
            let locals = (0..16).map(|bit| if number >> bit & 1 == 0 { 0x08 } else { 0x0e });
            emit.define_signature(&[0x07, 16].into_iter().chain(locals).collect::<Vec<u8>>())?;
            self.added.fetch_add(2, Relaxed);
        }
        Ok(())
    }

    fn read(&self, cx: &InNoGc<'_>, module: ModuleId, rounds: &Sender<()>) -> Result<()> {
        let import = cx.metadata(module)?;
        let methods = |class: &TypeDef| import.methods(*class);
        let methods: Vec<_> = import.type_defs()?.iter().map(methods).collect::<Result<Vec<_>>>()?.concat();
        let names = || methods.iter().map(|&method| Ok(import.method(method)?.name)).collect::<Result<Vec<_>>>();
        let expected = names()?;
        let mut seen = Vec::new();
        while !self.is_done.load(Relaxed) {
            for row in import.signatures()?.into_iter().skip(seen.len()) {
                let mut start = std::ptr::null();
                let mut size = 0;
                // SAFETY: the module is loaded to the end, and the call writes the two locals.
                let code = unsafe { import.as_raw().GetSigFromToken(row.as_raw(), &mut start, &mut size) };
                if code.is_ok() {
                    // SAFETY: what this profiler is to find out (fact: blobs).
                    let bytes = unsafe { std::slice::from_raw_parts(start, size as usize) }.to_vec();
                    seen.push(Seen { start: start.expose_provenance(), bytes });
                }
            }
            for Seen { start, bytes } in &seen {
                let start = std::ptr::with_exposed_provenance::<u8>(*start);
                // SAFETY: what this profiler is to find out (fact: blobs).
                let now = unsafe { std::slice::from_raw_parts(start, bytes.len()) };
                self.count(now == bytes);
            }
            self.count(names()? == expected);
            // The other thread may just have added its last row.
            let _ = rounds.send(());
        }
        Ok(())
    }

    fn count(&self, is_right: bool) {
        let count = if is_right { &self.compared } else { &self.wrong };
        count.fetch_add(1, Relaxed);
    }
}

#[callbacks]
impl Callbacks for Emits {
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        if !cx.module_info(module).is_ok_and(|info| info.path.ends_with("Facts.dll")) {
            return;
        }
        let reader = self.counts.clone();
        let (sender, rounds) = channel();
        let started = cx.spawn_profiler_thread("reads", move |cx| expect("reading", reader.read(cx, module, &sender)));
        expect("a thread", started.map(drop));
        expect("adding", self.counts.add(cx, module, &rounds));
        self.counts.is_done.store(true, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let counts = &self.counts;
        let [added, compared, wrong] =
            [&counts.added, &counts.compared, &counts.wrong].map(|count| count.load(Relaxed));
        eprintln!("outputs| added={added} compared={compared} wrong={wrong}");
    }
}

corprof::export!(Outputs, Emits);
