//! `corprof il check`: parses, encodes and verifies every method body.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use corprof_il::file::{InAssembly, Method};
use corprof_il::verify::{IlError, Rule, Verifier};
use corprof_il::{Body, Prefix};
use serde::Serialize;

use super::set::{Meant, Set};
use crate::exit::{self, Outcome};
use crate::output;

/// Check the method bodies of assemblies.
///
/// Parses each body, encodes it again, compares the bytes, and verifies it. Prints each refusal with method, rule and
/// offset, then the counts. Types of other assemblies are looked up in the folders of --with, then in the same folder;
/// a refusal says in which file. Of a single-file application, all assemblies are checked; reference assemblies are
/// not, as nothing runs their bodies. The exit code is 1 if a body is refused, changed or unreadable.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof il check bin/Release/net10.0/App.dll
  corprof il check --with /usr/share/dotnet/shared/Microsoft.NETCore.App/10.0.0 App.dll
  corprof il check --json App.dll | jq 'select(.verdict != \"ok\")'")]
pub struct Args {
    /// Assemblies, single-file applications, or folders of them
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// A folder of assemblies for type look-ups only, such as the framework's; it goes before the folder of the file
    #[arg(long, value_name = "FOLDER")]
    with: Vec<PathBuf>,

    /// Print a line of JSON for each method with a body: file, token, method, bytes, identical, verdict (ok, refused,
    /// unreadable), and rule, offset and message of the first breach, with the file in which the names in it were
    /// looked up
    #[arg(long)]
    json: bool,

    /// Repeat this many times, and print how many bodies per second are parsed, encoded and verified
    #[arg(long, default_value_t = 0, value_name = "N", conflicts_with = "json")]
    rounds: u32,
}

#[derive(Debug, Default)]
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
    by_rule: BTreeMap<Rule, usize>,
}

/// The line of JSON for a body.
#[derive(Debug, Serialize)]
struct Line<'a> {
    file: &'a Path,
    token: String,
    method: String,
    bytes: usize,
    identical: bool,
    verdict: &'static str,
    rule: Option<&'static str>,
    offset: Option<u32>,
    message: Option<String>,
    looked_up_in: Option<&'a Path>,
}

/// The result for a body.
struct Checked<'a> {
    bytes: usize,
    instructions: usize,
    is_identical: bool,
    verdict: Verdict<'a>,
}

/// A breach, and the file that defines what the instruction names, if it is another one.
struct Breach<'a> {
    error: IlError,
    looked_up_in: Option<&'a Path>,
}

enum Verdict<'a> {
    Ok,
    Refused(Vec<Breach<'a>>),
    Unreadable(String),
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn run(args: &Args) -> Outcome {
    let mut out = BufWriter::new(output::stdout());
    let mut counts = Counts::default();
    let mut times = Times::default();
    for set in Set::open(&args.files, &args.with)? {
        for meant in set.meant() {
            counts.assemblies += 1;
            let is_reference = meant.assembly.assembly().is_reference();
            if is_reference && !args.json {
                writeln!(out, "{}: a reference assembly, whose bodies nothing runs", meant.file.display())?;
            } else if meant.is_bundled && !args.json {
                writeln!(out, "{}: in a single-file application", meant.file.display())?;
            }
            if is_reference {
                continue;
            }
            check(&set, &meant, args.json, &mut counts, &mut out)?;
            for _ in 0..args.rounds {
                times.measure(&meant.assembly);
            }
        }
    }
    if !args.json {
        summary(&counts, &mut out)?;
        times.tell(&mut out)?;
    }
    out.flush()?;
    let is_sound = counts.refused + counts.changed + counts.unreadable == 0;
    Ok(if is_sound { ExitCode::SUCCESS } else { exit::NO.into() })
}

fn check(set: &Set, meant: &Meant<'_>, is_json: bool, counts: &mut Counts, out: &mut impl Write) -> io::Result<()> {
    let Meant { file, assembly: here, .. } = meant;
    let assembly = here.assembly();
    let mut verifier = Verifier::new(here);
    for method in assembly.methods() {
        counts.methods += 1;
        let Some(checked) = check_body(set, here, method, &mut verifier) else { continue };
        counts.add(&checked);
        let name = assembly.method_name(method.token);
        if is_json {
            let errors = if let Verdict::Refused(errors) = &checked.verdict { errors.as_slice() } else { &[] };
            let line = Line {
                file,
                token: method.token.token().to_string(),
                method: name,
                bytes: checked.bytes,
                identical: checked.is_identical,
                verdict: match checked.verdict {
                    Verdict::Ok => "ok",
                    Verdict::Refused(_) => "refused",
                    Verdict::Unreadable(_) => "unreadable",
                },
                rule: errors.first().map(|breach| breach.error.rule.name()),
                offset: errors.first().and_then(|breach| breach.error.offset),
                message: match &checked.verdict {
                    Verdict::Unreadable(why) => Some(why.clone()),
                    _ => errors.first().map(|breach| breach.error.to_string()),
                },
                looked_up_in: errors.first().and_then(|breach| breach.looked_up_in),
            };
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
            continue;
        }
        let at = format_args!("{}: {} {name}", file.display(), method.token);
        match &checked.verdict {
            Verdict::Ok => {}
            Verdict::Refused(errors) => {
                for Breach { error, looked_up_in } in errors {
                    let place = looked_up_in.map(|file| format!(" (looked up in {})", file.display()));
                    writeln!(out, "refused: {at}: {error}{}", place.unwrap_or_default())?;
                }
            }
            Verdict::Unreadable(why) => writeln!(out, "unreadable: {at}: {why}")?,
        }
        if !checked.is_identical && !matches!(checked.verdict, Verdict::Unreadable(_)) {
            writeln!(out, "changed: {at}: encoded again it is another body: please report this as a bug")?;
        }
    }
    Ok(())
}

/// Checks the body of a method; nothing if it has none.
fn check_body<'s>(
    set: &'s Set,
    here: &InAssembly<'_>,
    method: Method,
    verifier: &mut Verifier<'_, InAssembly<'_>>,
) -> Option<Checked<'s>> {
    let unreadable = |why: String| {
        Some(Checked { bytes: 0, instructions: 0, is_identical: false, verdict: Verdict::Unreadable(why) })
    };
    let bytes = match here.assembly().body_bytes(method) {
        Ok(bytes) => bytes?,
        Err(error) => return unreadable(error.to_string()),
    };
    let (body, length) = match Body::parse_prefix(bytes) {
        Ok(parsed) => parsed,
        Err(error) => return unreadable(error.to_string()),
    };
    let Some(context) = here.context(method) else { return unreadable("its signature cannot be read".into()) };
    let is_identical = body.encode().is_ok_and(|encoded| Some(encoded.as_slice()) == bytes.get(..length));
    let verdict = match verifier.verify(&body, &context) {
        Ok(_) => Verdict::Ok,
        Err(errors) => {
            let breach = |error| {
                let looked_up_in = looked_up_in(set, here, &body, &error);
                Breach { error, looked_up_in }
            };
            Verdict::Refused(errors.into_iter().map(breach).collect())
        }
    };
    Some(Checked { bytes: length, instructions: body.count(), is_identical, verdict })
}

/// The file that defines what the refused instruction names, if it is another one.
fn looked_up_in<'s>(set: &'s Set, here: &InAssembly<'_>, body: &Body, error: &IlError) -> Option<&'s Path> {
    let insn = body.get(error.instruction?)?;
    let of_prefix = insn.prefixes().iter().find_map(|prefix| match prefix {
        Prefix::Constrained(token) => Some(*token),
        _ => None,
    });
    let tokens = insn.token().into_iter().chain(of_prefix);
    let there = tokens.filter_map(|token| here.defined_in(token)).find(|there| there.number() != here.number())?;
    set.file(&there)
}

impl Counts {
    fn add(&mut self, checked: &Checked<'_>) {
        self.bodies += 1;
        self.bytes += checked.bytes;
        self.instructions += checked.instructions;
        match &checked.verdict {
            Verdict::Unreadable(_) => {
                self.unreadable += 1;
                return;
            }
            Verdict::Refused(errors) => {
                self.refused += 1;
                if let Some(breach) = errors.first() {
                    *self.by_rule.entry(breach.error.rule).or_default() += 1;
                }
            }
            Verdict::Ok => {}
        }
        if checked.is_identical {
            self.identical += 1;
        } else {
            self.changed += 1;
        }
    }
}

fn summary(counts: &Counts, out: &mut impl Write) -> io::Result<()> {
    let Counts { assemblies, methods, bodies, bytes, instructions, .. } = counts;
    writeln!(
        out,
        "{assemblies} assemblies, {methods} methods, {bodies} bodies, {bytes} bytes, {instructions} instructions"
    )?;
    let Counts { identical, changed, unreadable, refused, .. } = counts;
    writeln!(out, "identical {identical}, changed {changed}, unreadable {unreadable}, refused {refused}")?;
    for (rule, count) in &counts.by_rule {
        writeln!(out, "  {rule}: {count}")?;
    }
    Ok(())
}

/// The total times for all bodies so far.
#[derive(Debug, Default)]
struct Times {
    bodies: u32,
    parse: Duration,
    encode: Duration,
    verify: Duration,
}

impl Times {
    fn measure(&mut self, here: &InAssembly<'_>) {
        let assembly = here.assembly();
        let bodies: Vec<_> =
            assembly.methods().filter_map(|method| Some((method, assembly.body_bytes(method).ok()??))).collect();
        self.bodies += bodies.len() as u32;
        let start = Instant::now();
        let parsed: Vec<_> = bodies.iter().map(|(method, bytes)| (*method, Body::parse_prefix(bytes))).collect();
        self.parse += start.elapsed();
        let parsed: Vec<_> = parsed.into_iter().filter_map(|(method, parsed)| Some((method, parsed.ok()?.0))).collect();
        let start = Instant::now();
        for (_, body) in &parsed {
            std::hint::black_box(body.encode().is_ok());
        }
        self.encode += start.elapsed();
        let start = Instant::now();
        let mut verifier = Verifier::new(here);
        for (method, body) in &parsed {
            std::hint::black_box(here.context(*method).is_some_and(|context| verifier.verify(body, &context).is_ok()));
        }
        self.verify += start.elapsed();
    }

    fn tell(&self, out: &mut impl Write) -> io::Result<()> {
        if self.bodies == 0 {
            return Ok(());
        }
        let rate = |time: Duration| f64::from(self.bodies) / time.as_secs_f64();
        let parse = rate(self.parse);
        let encode = rate(self.encode);
        let verify = rate(self.verify);
        writeln!(out, "bodies a second: parsed {parse:.0}, encoded {encode:.0}, verified {verify:.0}")
    }
}
