//! Parses, encodes and verifies every method body of assemblies: `check FILE.dll…`.
//!
//! Files name each other's types, and those of the assemblies in their folders are found as well. Prints each refusal, and
//! counts at the end; exits with 1 if a body was refused or came back changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use corprof_il::Body;
use corprof_il::file::{Assemblies, Assembly, InAssembly};
use corprof_il::signature::{MethodSignature, Signature, Type};
use corprof_il::token::Table;
use corprof_il::verify::{Rule, Verifier};

#[derive(Parser)]
struct Options {
    /// Assemblies, or folders of them.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Folders of assemblies that are not checked, but that the others name.
    #[arg(long)]
    with: Vec<PathBuf>,
    /// Runs over everything so many times, and tells the speed.
    #[arg(long, default_value_t = 0)]
    rounds: u32,
    /// Print so many refusals of each rule at most.
    #[arg(long, default_value_t = usize::MAX)]
    most: usize,
}

#[derive(Default)]
struct Counts {
    assemblies: usize,
    methods: usize,
    bodies: usize,
    bytes: usize,
    instructions: usize,
    identical: usize,
    changed: usize,
    unreadable: usize,
    refused: usize,
    max_stack_lower: usize,
    signatures: usize,
    signatures_identical: usize,
    by_rule: BTreeMap<Rule, usize>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut counts = Counts::default();
    let mut fastest = (Duration::MAX, Duration::MAX, Duration::MAX);
    for (folder, files) in by_folder(&options.paths) {
        let mut set = Assemblies::new();
        let mut wanted = BTreeSet::new();
        for path in &files {
            if let Ok(assembly) = Assembly::open(path) {
                wanted.insert(set.iter().count());
                set.add(assembly);
            }
        }
        let with = options.with.iter().flat_map(|folder| neighbours(folder));
        for path in neighbours(&folder).into_iter().chain(with).filter(|path| !files.contains(path)) {
            if let Ok(assembly) = Assembly::open(&path) {
                set.add(assembly);
            }
        }
        for (number, assembly) in set.iter().enumerate().filter(|(number, _)| wanted.contains(number)) {
            let _ = number;
            counts.assemblies += 1;
            check(&assembly, &options, &mut counts);
        }
        for _ in 0..options.rounds {
            let times = time(&set, &wanted);
            if fastest.0 == Duration::MAX {
                fastest = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
            }
            fastest = (fastest.0 + times.0, fastest.1 + times.1, fastest.2 + times.2);
        }
    }
    tell(&counts, fastest, options.rounds)
}

fn tell(counts: &Counts, times: (Duration, Duration, Duration), rounds: u32) -> ExitCode {
    let is_sound = counts.refused + counts.changed + counts.unreadable == 0;
    let result = if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    println!(
        "{} assemblies, {} methods, {} bodies, {} bytes, {} instructions",
        counts.assemblies, counts.methods, counts.bodies, counts.bytes, counts.instructions
    );
    println!(
        "identical {}, changed {}, unreadable {}, refused {}; max stack below the declared one {}",
        counts.identical, counts.changed, counts.unreadable, counts.refused, counts.max_stack_lower
    );
    println!("signatures {}, identical {}", counts.signatures, counts.signatures_identical);
    for (rule, count) in &counts.by_rule {
        println!("  {rule}: {count}");
    }
    if rounds == 0 {
        return result;
    }
    let rate = |time: Duration| counts.bodies as f64 * f64::from(rounds) / time.as_secs_f64();
    println!(
        "bodies a second of processor time: parse {:.0}, parse and encode {:.0}, with verify {:.0}",
        rate(times.0),
        rate(times.1),
        rate(times.2)
    );
    result
}

/// The files by folder, as the assemblies of a folder name each other.
fn by_folder(paths: &[PathBuf]) -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut folders: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for path in paths {
        let files = if path.is_dir() { neighbours(path) } else { vec![path.clone()] };
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
        folders.entry(folder.to_owned()).or_default().extend(files);
    }
    folders
}

fn neighbours(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let mut files: Vec<_> = entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "dll" || extension == "exe"));
    files.sort();
    files
}

fn check(here: &InAssembly<'_>, options: &Options, counts: &mut Counts) {
    let assembly = here.assembly();
    let mut verifier = Verifier::new(here);
    for method in assembly.methods() {
        counts.methods += 1;
        let name = || format!("{} {} {}", assembly.name(), method.token, assembly.method_name(method.token));
        let bytes = match assembly.body_bytes(method) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            Err(error) => {
                println!("unreadable: {}: {error}", name());
                counts.unreadable += 1;
                continue;
            }
        };
        counts.bodies += 1;
        let (body, length) = match Body::parse_prefix(bytes) {
            Ok(parsed) => parsed,
            Err(error) => {
                println!("unreadable: {}: {error}", name());
                counts.unreadable += 1;
                continue;
            }
        };
        counts.bytes += length;
        counts.instructions += body.count();
        if body.encode().is_ok_and(|encoded| encoded == bytes[..length]) {
            counts.identical += 1;
        } else {
            println!("changed: {}", name());
            counts.changed += 1;
        }
        let Some(context) = here.context(method) else {
            println!("unreadable: {}: its signature", name());
            counts.unreadable += 1;
            continue;
        };
        match verifier.verify(&body, &context) {
            Ok(verified) => {
                counts.max_stack_lower +=
                    usize::from(body.max_stack().is_some_and(|max| verified.max_stack < max) && length > 63);
            }
            Err(errors) => {
                counts.refused += 1;
                for (number, error) in errors.iter().enumerate() {
                    let of_rule = counts.by_rule.entry(error.rule).or_default();
                    *of_rule += usize::from(number == 0);
                    if *of_rule <= options.most {
                        println!("refused: {}: {error}", name());
                    }
                }
            }
        }
    }
    for (token, blob) in assembly.signatures() {
        counts.signatures += 1;
        let encoded = match token.table() {
            Some(Table::TypeSpec) => Type::decode(blob).ok().and_then(|ty| ty.encode().ok()),
            Some(Table::MethodDef) => MethodSignature::decode(blob).ok().and_then(|method| method.encode().ok()),
            _ => Signature::decode(blob).ok().and_then(|signature| signature.encode().ok()),
        };
        if encoded.as_deref() == Some(blob) {
            counts.signatures_identical += 1;
        } else {
            println!("signature: {} {token}: {blob:02x?} became {encoded:02x?}", assembly.name());
        }
    }
}

/// Measures the processor time of this thread where the system tells it (Linux), as others may be at work: else the time.
struct Clock(Instant, Option<Duration>);

impl Clock {
    fn start() -> Self {
        Self(Instant::now(), Self::of_thread())
    }

    fn of_thread() -> Option<Duration> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    }

    fn elapsed(&self) -> Duration {
        let of_thread = self.1.zip(Self::of_thread()).map(|(before, now)| now.saturating_sub(before));
        of_thread.unwrap_or_else(|| self.0.elapsed())
    }
}

/// How long it takes to parse, to parse and encode, and to do that and verify, all bodies.
fn time(set: &Assemblies, wanted: &BTreeSet<usize>) -> (Duration, Duration, Duration) {
    let mut times = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for (_, here) in set.iter().enumerate().filter(|(number, _)| wanted.contains(number)) {
        let assembly = here.assembly();
        let bodies = || assembly.methods().filter_map(|method| Some((method, assembly.body_bytes(method).ok()??)));
        let start = Clock::start();
        for (_, bytes) in bodies() {
            std::hint::black_box(Body::parse_prefix(bytes).is_ok());
        }
        times.0 += start.elapsed();
        let start = Clock::start();
        for (_, bytes) in bodies() {
            let encoded = Body::parse_prefix(bytes).map(|(body, _)| body.encode());
            std::hint::black_box(encoded.is_ok());
        }
        times.1 += start.elapsed();
        let start = Clock::start();
        let mut verifier = Verifier::new(&here);
        for (method, bytes) in bodies() {
            if let (Ok((body, _)), Some(context)) = (Body::parse_prefix(bytes), here.context(method)) {
                std::hint::black_box((body.encode().is_ok(), verifier.verify(&body, &context).is_ok()));
            }
        }
        times.2 += start.elapsed();
    }
    times
}
