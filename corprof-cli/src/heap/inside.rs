//! A snapshot from inside the process: the built-in profiler `dumper` writes it into a file, and detaches.
//!
//! The process needs no buffer, and there is none that could overflow. The file has no name while it is large, so that
//! the system frees its room when this command and the process have closed it, even if both are killed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use corprof_diagnostics::{Process, ProcessInfo};
use corprof_heap::{BulkReader, GraphBuilder, HeapGraph};
use corprof_launch::processes;

use super::cost::Cost;
use super::title::title;
use crate::attached_profiler::{self, Place};
use crate::{embedded, exit};

/// The longest block that is read: the runtime's are of at most 64 KB.
const LONGEST: u32 = 1 << 24;

/// The event of a block with fields, and whose fields they are (profilers/library/task_fields.rs).
const FIELDS: u16 = u16::MAX;
const OF_TASK: u64 = 0;
const OF_CONTINUATION: u64 = 1;
const OF_MACHINE: u64 = 2;

/// What a snapshot tells of tasks and of suspended methods, by the addresses of the objects.
#[derive(Debug, Default)]
pub(crate) struct TaskFields {
    pub(crate) tasks: HashMap<u64, TaskState>,
    pub(crate) continuations: HashMap<u64, Continuation>,
    /// The methods, by addresses at which they go on.
    pub(crate) code: HashMap<u64, Code>,
    /// The states of the state machines of tasks.
    pub(crate) states: HashMap<u64, i32>,
    /// Their methods, by the classes of the tasks: the module, and the token. None of a name that several classes have.
    pub(crate) machines: HashMap<String, Option<(PathBuf, u32)>>,
}

/// Fields of a task. References are addresses; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskState {
    pub(crate) flags: u32,
    /// Who goes on when it is completed: one, or a list.
    pub(crate) continuation: u64,
    pub(crate) state: u64,
    pub(crate) action: u64,
}

/// A method that the runtime itself has suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Continuation {
    /// The one of the method that awaits it.
    pub(crate) next: u64,
    /// Where it goes on; 0 for none of the application's methods.
    pub(crate) address: u64,
}

/// A method that goes on at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) name: String,
    /// The address in the IL, if it is known: the module, the token of the method, and the offset.
    pub(crate) place: Option<(PathBuf, u32, u32)>,
}

impl TaskFields {
    fn add(&mut self, payload: &[u8]) {
        let numbers: Vec<u64> = payload.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        match *numbers.as_slice() {
            [OF_TASK, object, flags, continuation, state, action] => {
                self.tasks.insert(object, TaskState { flags: flags as u32, continuation, state, action });
            }
            [OF_CONTINUATION, object, next, address] => {
                self.continuations.insert(object, Continuation { next, address });
            }
            [OF_MACHINE, object, state] => {
                self.states.insert(object, state as u32 as i32);
            }
            _ => {}
        }
    }
}

/// The description that the profiler writes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Description {
    pauses: Vec<Duration>,
    /// How many snapshots before this one were cut.
    repeated: u64,
    objects: usize,
    bytes: u64,
    /// Beginnings and lengths of the ranges whose objects are never collected.
    frozen: Vec<(u64, u64)>,
    /// Number, assembly and name.
    classes: Vec<(u64, String, String)>,
    /// Methods that tell for what classes were made, by the numbers of the classes.
    made: Vec<(u64, String)>,
    /// Classes of static fields, by the addresses of the fields.
    statics: Vec<(u64, String)>,
    /// Methods, by addresses in their code.
    code: Vec<(u64, Code)>,
    /// Methods of state machines, by the classes of their tasks.
    machines: HashMap<String, Option<(PathBuf, u32)>>,
}

/// Attaches the profiler and reads its snapshot; or returns the reason why it cannot attach.
///
/// # Errors
/// If the profiler is attached and there is no snapshot.
pub(crate) fn take(
    process: &Process,
    info: &ProcessInfo,
    timeout: Duration,
    stop: &AtomicBool,
    mut tasks: Option<&mut TaskFields>,
) -> Result<Result<(HeapGraph, Cost)>> {
    let begin = Instant::now();
    let taken = super::now();
    let (place, blocks) = match prepare(process) {
        Ok(prepared) => prepared,
        Err(why) => return Ok(Err(why)),
    };
    let out = place.file("heap");
    let has_tasks = if tasks.is_some() { "yes" } else { "no" };
    let out_for_process = place.path_for_process(&out);
    let settings = [("HEAP_OUT", out_for_process.as_os_str()), ("HEAP_TASKS", OsStr::new(has_tasks))];
    match place.attach(process, "dumper", &settings) {
        Ok(()) => {}
        Err(failure) if failure.code == exit::NO => return Ok(Err(failure.error)),
        Err(failure) => return Err(failure.error),
    }
    // Only now, so that the runtime's answer does not wait for the collection.
    make(&place.file("heap.wanted"), process.pid())?;
    let text = written(&place, &blocks, process.pid(), timeout, stop)?;
    let took = begin.elapsed();
    let description = description(&text, &place.path_for_process(&out))?;
    let is_64_bit = !matches!(info.architecture.as_str(), "x86" | "arm32" | "arm");
    let mut reader = BulkReader::new(GraphBuilder::new(title(info)), is_64_bit);
    reader.builder().set_taken(taken);
    for &(start, length) in &description.frozen {
        reader.builder().frozen(start, length);
    }
    for (key, assembly, name) in &description.classes {
        reader.builder().class(*key, name, assembly, 0);
    }
    for (key, method) in &description.made {
        reader.builder().class_method(*key, method);
    }
    for (address, class) in &description.statics {
        reader.static_class(*address, class);
    }
    read_blocks(BufReader::with_capacity(256 << 10, blocks), |event, payload| {
        ensure!(!stop.load(Ordering::Relaxed), "the dump was stopped, and thrown away");
        match tasks.as_deref_mut() {
            Some(tasks) if event == FIELDS => tasks.add(payload),
            _ => {
                reader.event(event, payload);
            }
        }
        Ok(())
    })?;
    if let Some(tasks) = tasks {
        tasks.code.extend(description.code);
        tasks.machines.extend(description.machines);
    }
    let graph = reader.finish()?;
    let losses = graph.losses();
    ensure!(!losses.is_cut() && !losses.is_doubled(), "the dump is cut, and was thrown away: {losses}");
    ensure!(
        graph.len() == description.objects,
        "the dump is cut, and was thrown away: {} of {} objects came",
        graph.len(),
        description.objects
    );
    attached_profiler::tell("dumper", process.pid(), &place.wait_unless(&out, || stop.load(Ordering::Relaxed)));
    let cost = Cost {
        objects: graph.len(),
        bytes: description.bytes,
        took,
        collections: description.pauses.len(),
        pauses: description.pauses,
        collects_at_end: false,
        repeated: description.repeated,
        is_inside: true,
    };
    Ok(Ok((graph, cost)))
}

/// The folder with the files for the profiler, and the file of the blocks, open to read.
fn prepare(process: &Process) -> Result<(Place, File)> {
    embedded::library()?;
    let place = Place::new(process).map_err(|failure| failure.error)?;
    let blocks = place.file("heap");
    make(&blocks, process.pid())?;
    let file =
        attached_profiler::folder::reader(&blocks).with_context(|| format!("cannot read {}", blocks.display()))?;
    Ok((place, file))
}

/// Makes an empty file that the process can write.
fn make(file: &Path, pid: u32) -> Result<()> {
    let made = attached_profiler::folder::make(file).and_then(|made| processes::give(&made, pid));
    made.with_context(|| match processes::is_there(pid) {
        true => format!("cannot make {}", file.display()),
        false => format!("process {pid} has ended"),
    })
}

/// Waits for the description. Before an error, requests the profiler to detach.
fn written(place: &Place, blocks: &File, pid: u32, timeout: Duration, stop: &AtomicBool) -> Result<String> {
    let file = place.of_process(&place.file("heap"), "");
    let mut last = Instant::now();
    let mut size = 0;
    loop {
        // Asked before the file: a process may create the file and end right afterwards.
        let has_ended = place.has_ended();
        match attached_profiler::folder::read(&file) {
            Ok(text) => return Ok(text),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).context("cannot read the snapshot"),
        }
        ensure!(!has_ended, "process {pid} ended before the dump did, and what came was thrown away");
        let length = blocks.metadata().map_or(0, |metadata| metadata.len());
        if length != size {
            (last, size) = (Instant::now(), length);
        }
        let is_stopped = stop.load(Ordering::Relaxed);
        if !is_stopped && last.elapsed() < timeout {
            thread::sleep(attached_profiler::LOOK);
            continue;
        }
        // The profiler detaches when it misses this file.
        let _ = fs::remove_file(place.file("heap.wanted"));
        if is_stopped {
            attached_profiler::tell("dumper", pid, &place.wait_unless(&place.file("heap"), || false));
            bail!("the dump was stopped, and thrown away");
        }
        let waiting = if size > 0 { "in the middle of the dump" } else { "no dump begins" };
        bail!("the process has written nothing for {timeout:?}: {waiting}. Its profiler detaches as soon as it can");
    }
}

/// Parses the format of the built-in profiler `dumper`, whose file in a folder of its own was `out`.
fn description(text: &str, out: &Path) -> Result<Description> {
    let unknown = || anyhow!("the profiler has written an unknown format");
    let mut lines = text.lines();
    ensure!(lines.next() == Some("heap 1"), unknown());
    let mut description = Description::default();
    for line in lines {
        let (word, rest) = line.split_once(' ').ok_or_else(unknown)?;
        let number = || rest.parse::<u64>().map_err(|_| unknown());
        match word {
            "pause" | "later" => description.pauses.push(Duration::from_micros(number()?)),
            "repeated" => description.repeated = number()?,
            "objects" => description.objects = usize::try_from(number()?)?,
            "bytes" => description.bytes = number()?,
            "frozen" => {
                let (start, length) = rest.split_once(' ').ok_or_else(unknown)?;
                let [start, length] = [start, length].map(str::parse);
                description.frozen.push((start.map_err(|_| unknown())?, length.map_err(|_| unknown())?));
            }
            "class" => {
                let mut fields = rest.splitn(3, '\t');
                let key = fields.next();
                let assembly = fields.next();
                let name = fields.next();
                let key = key.and_then(|key| key.parse().ok()).ok_or_else(unknown)?;
                let (assembly, name) = assembly.zip(name).ok_or_else(unknown)?;
                description.classes.push((key, assembly.to_owned(), name.to_owned()));
            }
            "made" => {
                let (key, method) = rest.split_once(' ').ok_or_else(unknown)?;
                description.made.push((key.parse().map_err(|_| unknown())?, method.to_owned()));
            }
            "static" => {
                let (address, name) = rest.split_once(' ').ok_or_else(unknown)?;
                description.statics.push((address.parse().map_err(|_| unknown())?, name.to_owned()));
            }
            "code" => {
                let (address, code) = rest.split_once(' ').ok_or_else(unknown)?;
                description.code.push((address.parse().map_err(|_| unknown())?, code_of(code).ok_or_else(unknown)?));
            }
            "machine" => {
                let fields: Vec<&str> = rest.split('\t').collect();
                let [class, module, token] = *fields.as_slice() else { return Err(unknown()) };
                let method = Some((PathBuf::from(module), token.parse().map_err(|_| unknown())?));
                let known = description.machines.entry(class.to_owned()).or_insert_with(|| method.clone());
                if *known != method {
                    *known = None;
                }
            }
            "full" => {
                let folder = out.ancestors().nth(2).unwrap_or(out).display();
                bail!(
                    "the folder {folder} has no room for the snapshot, which takes some 48 bytes an object until it is read ({rest}): \
                     name another folder by TMPDIR"
                );
            }
            "error" => bail!("the process could not make the dump: {rest}"),
            _ => return Err(unknown()),
        }
    }
    Ok(description)
}

/// A method as the profiler describes it.
fn code_of(text: &str) -> Option<Code> {
    let fields: Vec<&str> = text.split('\t').collect();
    match *fields.as_slice() {
        [name] => Some(Code { name: name.to_owned(), place: None }),
        [name, module, token, offset] => {
            let place = (PathBuf::from(module), token.parse().ok()?, offset.parse().ok()?);
            Some(Code { name: name.to_owned(), place: Some(place) })
        }
        _ => None,
    }
}

/// Calls `block` with the event and the payload of each block, in the format of corprof's `BlockFile`.
fn read_blocks(mut file: impl Read, mut block: impl FnMut(u16, &[u8]) -> Result<()>) -> Result<()> {
    let mut payload = Vec::new();
    loop {
        let mut header = [0; 6];
        if file.read(&mut header[..1])? == 0 {
            return Ok(());
        }
        let cut = |error: io::Error| Error::new(error).context("the dump is cut, and was thrown away");
        file.read_exact(&mut header[1..]).map_err(cut)?;
        let [low, high, length @ ..] = header;
        let length = u32::from_le_bytes(length);
        ensure!(length <= LONGEST, "the profiler has written a block of {length} bytes");
        payload.resize(length as usize, 0);
        file.read_exact(&mut payload).map_err(cut)?;
        block(u16::from_le_bytes([low, high]), &payload)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_the_profiler_is_parsed() {
        let parse = |text: &str| description(text, Path::new("/tmp/corprof-1/heap"));
        let text = "heap 1\nrepeated 1\npause 1500\nlater 20\nobjects 3\nbytes 96\nfrozen 4096 64\nclass 7\tShop\tShop.Item[]\nclass 8\t\tA B\nmade 8 <A>b__0\nstatic 72 A.C\ncode 64 A.B()\ncode 65 A.D()\t/a b.dll\t7\t9\nmachine A B\t/a b.dll\t5\nmachine C\t/a.dll\t5\nmachine C\t/b.dll\t5\n";
        let class = |key, assembly: &str, name: &str| (key, assembly.to_owned(), name.to_owned());
        let expected = Description {
            pauses: [1500, 20].map(Duration::from_micros).to_vec(),
            repeated: 1,
            objects: 3,
            bytes: 96,
            frozen: vec![(4096, 64)],
            classes: vec![class(7, "Shop", "Shop.Item[]"), class(8, "", "A B")],
            made: vec![(8, "<A>b__0".to_owned())],
            statics: vec![(72, "A.C".to_owned())],
            code: vec![
                (64, Code { name: "A.B()".to_owned(), place: None }),
                (65, Code { name: "A.D()".to_owned(), place: Some((PathBuf::from("/a b.dll"), 7, 9)) }),
            ],
            machines: [("A B".to_owned(), Some((PathBuf::from("/a b.dll"), 5))), ("C".to_owned(), None)].into(),
        };
        assert_eq!(parse(text).unwrap(), expected);
        for wrong in [
            "",
            "heap 2\n",
            "heap 1\npause x\n",
            "heap 1\nclass 7\tShop\n",
            "heap 1\nelse 1\n",
            "heap 1\ncode 1 a\tb\n",
            "heap 1\nmachine a\tb\n",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let error = parse("heap 1\nfull No space left on device\n").unwrap_err().to_string();
        assert!(error.contains("folder /tmp has no room") && error.contains("TMPDIR"), "{error}");
        assert!(parse("heap 1\nerror why\n").unwrap_err().to_string().contains("why"));
    }

    #[test]
    fn blocks_are_read_to_their_end() {
        let read = |bytes: &[u8]| {
            let mut blocks = Vec::new();
            read_blocks(bytes, |event, payload| {
                blocks.push((event, payload.to_vec()));
                Ok(())
            })?;
            Ok::<_, Error>(blocks)
        };
        let file = [18, 0, 3, 0, 0, 0, 1, 2, 3, 16, 1, 0, 0, 0, 0];
        assert_eq!(read(&file).unwrap(), [(18, vec![1, 2, 3]), (272, Vec::new())]);
        assert_eq!(read(&[]).unwrap(), []);
        for cut in [1, 5, 8, 10] {
            assert!(read(&file[..cut]).unwrap_err().to_string().contains("cut"), "{cut}");
        }
        assert!(read(&[18, 0, 0, 0, 0, 2]).is_err());
    }
}
