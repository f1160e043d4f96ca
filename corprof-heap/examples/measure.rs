//! Builds and analyses a heap of 10,000,000 objects and 14,000,000 references, and prints the time and memory of each
//! step: `cargo run --release -p corprof-heap --example measure -- [OBJECTS = 10000000] [SEED = 1] [FOLDER]`, where
//! FOLDER gets a file of each format. Instead of OBJECTS, a file of `corprof::heap_dump::BlockFile` has the heap of a
//! real application.
//!
//! The heap comes as the runtime's events do, in blocks of 64 KB, objects and references interleaved. It has lists,
//! arrays, trees and objects that several share; an eighth is unreachable.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read};
use std::path::Path;
use std::time::Instant;

use corprof_heap::diff::{DEFAULT_DEPTH, Summary};
use corprof_heap::report::{Names, Options, Report};
use corprof_heap::{BulkReader, Dominators, GraphBuilder, HeapGraph, Totals, chrome, gcdump, perfetto};
use fastrand::Rng;

/// A line of `/proc/self/status` in megabytes; 0 where there is none.
fn megabytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024 / 1_000_000
}

/// Seconds that this thread has had a processor for.
fn processor_seconds() -> f64 {
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    times.split(' ').next().and_then(|time| time.parse::<f64>().ok()).unwrap_or_default() / 1e9
}

fn step<T>(name: &str, work: impl FnOnce() -> T) -> T {
    // "5" resets the peak to the resident memory.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let start = Instant::now();
    let processor = processor_seconds();
    let result = work();
    println!(
        "{name:10} {:6.2} s, {:6.2} s of a processor; resident: peak {:4} MB, now {:4} MB",
        start.elapsed().as_secs_f64(),
        processor_seconds() - processor,
        megabytes("VmHWM"),
        megabytes("VmRSS"),
    );
    result
}

/// A block of an event: header, then entries.
struct Block {
    id: u16,
    index: u32,
    count: u32,
    payload: Vec<u8>,
}

impl Block {
    fn new(id: u16) -> Self {
        Self { id, index: 0, count: 0, payload: vec![0; 10] }
    }

    fn push(&mut self, reader: &mut BulkReader, words: &[u64], rest: &[u8]) {
        words.iter().for_each(|word| self.payload.extend(word.to_le_bytes()));
        self.payload.extend(rest);
        self.count += 1;
        if self.payload.len() > 64_000 {
            self.send(reader);
        }
    }

    fn send(&mut self, reader: &mut BulkReader) {
        self.payload[..4].copy_from_slice(&self.index.to_le_bytes());
        self.payload[4..8].copy_from_slice(&self.count.to_le_bytes());
        reader.event(self.id, &self.payload);
        self.payload.truncate(10);
        self.index += 1;
        self.count = 0;
    }
}

/// Where an object lies: 32 to 56 bytes each, with gaps.
fn address(object: u64) -> u64 {
    0x7f00_0000_0000 + object * 64 + (object * object % 3) * 8
}

fn generate(objects: u64, seed: u64) -> BulkReader {
    let mut rng = Rng::with_seed(seed);
    let mut reader = BulkReader::new(GraphBuilder::new("generated"), true);
    let mut nodes = Block::new(18);
    let mut edges = Block::new(19);
    let mut roots = Block::new(16);
    // Every object but the first of a thousand is referred to by the one before (lists), or one of a few before (trees,
    // arrays). It is 1 reference an object, and 0.4 more to anywhere or back.
    let mut pending: Vec<Vec<u64>> = vec![Vec::new(); 64];
    for object in 0..objects {
        let mut targets = std::mem::take(&mut pending[(object % 64) as usize]);
        if object + 1 < objects && (object + 1) % 1000 != 0 {
            match object % 100_000 {
                ..50_000 => targets.push(object + 1),
                _ => pending[((object + 1 - rng.u64(..8).min(object % 1000)) % 64) as usize].push(object + 1),
            }
        }
        if rng.u8(..5) < 2 {
            targets.push(if rng.bool() { rng.u64(..objects) } else { object.saturating_sub(rng.u64(..100)) });
        }
        let class = 0x7fff_0000 + rng.u64(..3000).pow(2) / 3000 * 64;
        let size = 24 + class % 7 * 8 + if class.is_multiple_of(5) { rng.u64(..500) * 8 } else { 0 };
        nodes.push(&mut reader, &[address(object), size, class, targets.len() as u64], &[]);
        targets.iter().for_each(|&target| edges.push(&mut reader, &[address(target)], &[0; 4]));
    }
    nodes.send(&mut reader);
    edges.send(&mut reader);
    for object in (0..objects).step_by(1000) {
        roots.push(&mut reader, &[address(object)], &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    roots.send(&mut reader);
    reader
}

/// The blocks of a real dump: of each the event and the length, then the payload.
fn read_blocks(path: &Path) -> std::io::Result<BulkReader> {
    let mut file = BufReader::with_capacity(1 << 18, File::open(path)?);
    let mut reader = BulkReader::new(GraphBuilder::new("measured"), true);
    let mut payload = Vec::new();
    while !file.fill_buf()?.is_empty() {
        let mut header = [0; 6];
        file.read_exact(&mut header)?;
        let [low, high, length @ ..] = header;
        payload.resize(u32::from_le_bytes(length) as usize, 0);
        file.read_exact(&mut payload)?;
        reader.event(u16::from_le_bytes([low, high]), &payload);
    }
    Ok(reader)
}

/// Names such as applications have.
fn name_classes(reader: &mut BulkReader) {
    let classes: Vec<u64> = reader.builder().undescribed_classes().collect();
    for class in classes {
        let number = class.wrapping_sub(0x7fff_0000) / 64;
        let name = match number % 7 {
            0 => format!("Shop.Orders.Order{number}"),
            1 => format!("System.Collections.Generic.Dictionary`2<System.String,Shop.Item{number}>"),
            2 => format!("Shop.Item{number}[]"),
            3 => format!("Shop.Program+<>c__DisplayClass{number}_0"),
            _ => format!("System.Threading.Tasks.Task`1<Shop.Result{number}>"),
        };
        let assembly = if name.starts_with("Shop") { "Shop" } else { "System.Private.CoreLib" };
        reader.builder().class(class, &name, assembly, 24);
    }
}

fn create(folder: &Path, name: &str) -> std::io::Result<BufWriter<File>> {
    File::create(folder.join(name)).map(BufWriter::new)
}

/// Writes each format, and says how large it is.
fn write_all(tree: &Dominators<'_>, report: &Report, folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    step("cheap", || tree.graph().write(create(folder, "heap.cheap")?))?;
    report.write_text(create(folder, "heap.txt")?)?;
    report.write_json(create(folder, "heap.json")?)?;
    report.write_html(create(folder, "heap.html")?)?;
    let written = step("chrome", || chrome::write(tree, chrome::DEFAULT_CAP, create(folder, "heap.heapsnapshot")?))?;
    println!("{written:?}");
    step("perfetto", || perfetto::write(tree, 1, create(folder, "heap.pftrace")?))?;
    step("gcdump", || gcdump::write(tree, 1, create(folder, "heap.gcdump")?))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        println!("{:>12} bytes  {}", entry.metadata()?.len(), entry.path().display());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let source = arguments.next().unwrap_or_else(|| "10000000".to_owned());
    let seed = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let folder = arguments.next();

    let mut reader = match source.parse() {
        Ok(objects) => step("read", || generate(objects, seed)),
        Err(_) => step("read", || read_blocks(source.as_ref()))?,
    };
    name_classes(&mut reader);
    let graph = step("build", || reader.finish())?;
    println!("{} objects, {} references, {}", graph.len(), graph.reference_count(), graph.losses());
    println!("graph: {} MB", graph.memory() / 1_000_000);
    let tree = step("dominators", || Dominators::of(&graph));
    println!("{} reachable, {} bytes", tree.reachable_count(), tree.reachable_bytes());
    step("totals", || Totals::of(&tree));
    let report = step("report", || Report::of(&tree, Options::default(), &Names::default()));
    let summary = step("summary", || Summary::of(&tree, DEFAULT_DEPTH));
    println!("{} paths, {} objects merged", summary.path_count(), summary.merged_objects());
    drop(summary);
    if let Some(folder) = folder {
        write_all(&tree, &report, folder.as_ref())?;
        drop(tree);
        drop(graph);
        let file = File::open(Path::new(&folder).join("heap.cheap"))?;
        step("read file", || HeapGraph::read(file))?;
    }
    Ok(())
}
