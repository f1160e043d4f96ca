//! The verifier of `corprof-il` against the compilers of real runtimes: mutants of real bodies get a verdict here, then
//! a runtime compiles each, and the outcomes are compared.
//!
//! The claim: no body that the verifier accepts ends in an `InvalidProgramException`, kills the process or keeps the
//! compiler from coming back. `mutate` makes the mutants, `generate` makes bodies that are like no real ones, `drive`
//! has them compiled, `tally` compares.

mod drive;
mod generate;
mod mutate;
mod tally;

pub use drive::Ending;
pub use tally::Tally;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_il::Body;
use corprof_il::file::{Assemblies, Assembly, InAssembly, Method};
use corprof_il::verify::{MethodContext, Verifier};

use crate::Runtime;
use drive::{Batch, Outcome};
use generate::Generator;
use mutate::Mutator;

/// So long may the compiler take for a body that the verifier takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// And for one that it refuses: nothing is claimed of those.
const LITTLE_PATIENCE: Duration = Duration::from_secs(2);

/// So many copies of an assembly are loaded by one process.
const FILES: usize = 8;

/// Where the bodies come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// They are mutants of real ones.
    Mutated,
    /// They are made from nothing, and all are such as the verifier takes.
    Generated,
    /// They are made from nothing, and all are such as the verifier takes that knows one assembly only.
    GeneratedAlone,
}

/// The work on each runtime.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the mutants come from.
    pub source: Source,
    /// How many mutants to make.
    pub mutants: usize,
    /// The same seed makes the same mutants of the same assemblies.
    pub seed: u64,
    /// The assemblies of the framework whose bodies are mutated.
    pub assemblies: &'static [&'static str],
    /// Of the mutants that the verifier refuses, every so many is compiled.
    pub every_refused: usize,
}

/// A mutant, and the verifier's verdict.
#[derive(Debug)]
pub struct Mutant {
    /// The method.
    pub name: String,
    token: u32,
    /// The change.
    pub change: String,
    /// The body.
    pub bytes: Vec<u8>,
    /// The rule that it breaks, if it breaks one.
    pub rule: Option<&'static str>,
}

/// Mutants of one assembly: one for each of some of its methods.
struct Litter {
    assembly: String,
    mutants: Vec<Mutant>,
}

/// Makes mutants, has them compiled by both modes of the runtime's compiler, and counts.
///
/// # Errors
/// If a program cannot be run, or a control was not refused.
pub fn compare(runtime: &Runtime, plan: &Plan) -> Result<Tally> {
    let framework = runtime.framework()?;
    let set = assemblies(&framework)?;
    let folder = tempfile::tempdir()?;
    let slots = slots(runtime, plan, &set, &framework, &folder.path().join("controls"))?;
    let mut litters = litters(plan, &set, &framework, &slots)?;
    // A copy in a context of its own would make references of other assemblies to its name ambiguous.
    litters.sort_by(|a, b| a.assembly.cmp(&b.assembly));
    let mut tally = Tally::new(runtime.name.clone(), plan.every_refused);
    for (is_refused, kind) in [(false, "sound"), (true, "refused")] {
        let chosen = |number: usize, mutant: &Mutant| {
            mutant.rule.is_some() == is_refused && (!is_refused || number.is_multiple_of(plan.every_refused))
        };
        let of_one_assembly = litters.chunk_by(|a, b| a.assembly == b.assembly);
        for (number, litters) in of_one_assembly.flat_map(|litters| litters.chunks(FILES)).enumerate() {
            let folder = folder.path().join(format!("{kind}-{number}"));
            let mut files = Files::default();
            for (number, litter) in litters.iter().enumerate() {
                let mutants = litter.mutants.iter().enumerate().filter(|(number, mutant)| chosen(*number, mutant));
                let mutants: Vec<&Mutant> = mutants.map(|(_, mutant)| mutant).collect();
                files.add(&framework, &folder.join(number.to_string()), &litter.assembly, &mutants)?;
            }
            for is_optimised in [true, false] {
                let patience = if is_refused { LITTLE_PATIENCE } else { PATIENCE };
                let outcomes = files.batch(runtime, is_optimised, patience).compile()?;
                for (mutant, outcome) in files.mutants.iter().zip(outcomes) {
                    tally.count(mutant, is_optimised, outcome);
                }
            }
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(tally)
}

/// Copies of assemblies with bodies beside them.
#[derive(Default)]
struct Files<'m> {
    paths: Vec<PathBuf>,
    methods: Vec<(usize, u32)>,
    mutants: Vec<&'m Mutant>,
}

impl<'m> Files<'m> {
    fn add(&mut self, framework: &Path, folder: &Path, assembly: &str, mutants: &[&'m Mutant]) -> Result<()> {
        let path = copy(framework, folder, assembly)?;
        let mut bodies = Vec::new();
        for mutant in mutants {
            bodies.extend(mutant.token.to_le_bytes());
            bodies.extend(u32::try_from(mutant.bytes.len())?.to_le_bytes());
            bodies.extend(&mutant.bytes);
            self.methods.push((self.paths.len(), mutant.token));
        }
        fs::write(folder.join(format!("{assembly}.dll.bodies")), bodies)?;
        self.paths.push(path);
        self.mutants.extend(mutants);
        Ok(())
    }

    fn batch<'a>(&'a self, runtime: &'a Runtime, is_optimised: bool, patience: Duration) -> Batch<'a> {
        Batch { runtime, files: &self.paths, methods: &self.methods, is_optimised, patience }
    }
}

fn assemblies(framework: &Path) -> Result<Assemblies> {
    let mut set = Assemblies::new();
    for entry in fs::read_dir(framework)? {
        let path = entry?.path();
        // Native libraries lie there as well, and are not assemblies.
        if path.extension().is_some_and(|extension| extension == "dll")
            && let Ok(assembly) = Assembly::open(&path)
        {
            set.add(assembly);
        }
    }
    Ok(set)
}

fn named<'a>(set: &'a Assemblies, name: &str) -> Result<InAssembly<'a>> {
    set.iter().find(|here| here.assembly().name() == name).with_context(|| format!("no assembly {name}"))
}

/// Copies an assembly; its precompiled code is turned down by the profiler.
fn copy(framework: &Path, folder: &Path, assembly: &str) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{assembly}.dll"));
    fs::copy(framework.join(format!("{assembly}.dll")), &path)?;
    Ok(path)
}

/// The methods usable for the test: a body whose first opcode does not exist must be refused there.
fn slots(
    runtime: &Runtime,
    plan: &Plan,
    set: &Assemblies,
    framework: &Path,
    folder: &Path,
) -> Result<HashSet<(&'static str, u32)>> {
    // A header of one byte, an undefined opcode, `ret`.
    const UNDEFINED: [u8; 3] = [2 << 2 | 0b10, 0x24, 0x2a];
    let mut controls = Vec::new();
    for name in plan.assemblies {
        let here = named(set, name)?;
        let of = |method: Method| Mutant {
            name: here.assembly().method_name(method.token),
            token: method.token.as_raw(),
            change: "control".to_owned(),
            bytes: UNDEFINED.to_vec(),
            rule: None,
        };
        // Class constructors can run while others are compiled.
        let methods = here.assembly().methods().filter(|method| method.rva != 0).map(of);
        controls.push((*name, methods.filter(|mutant| !mutant.name.ends_with("::.cctor")).collect::<Vec<_>>()));
    }
    let mut files = Files::default();
    let mut names = Vec::new();
    for (name, controls) in &controls {
        files.add(framework, &folder.join(name), name, &controls.iter().collect::<Vec<_>>())?;
        names.extend(controls.iter().map(|_| *name));
    }
    let outcomes = files.batch(runtime, true, PATIENCE).compile()?;
    let is_refused = |outcome: &Outcome| matches!(&outcome.ending, Ending::Threw { exception, .. } if exception == "InvalidProgramException");
    let slots: HashSet<_> = names
        .into_iter()
        .zip(files.mutants)
        .zip(outcomes)
        .filter(|(_, outcome)| is_refused(outcome))
        .map(|((name, mutant), _)| (name, mutant.token))
        .collect();
    ensure!(!slots.is_empty(), "no control was refused");
    Ok(slots)
}

/// Mutants, as many as are wanted: one of each method, then another of each.
fn litters(
    plan: &Plan,
    set: &Assemblies,
    framework: &Path,
    slots: &HashSet<(&'static str, u32)>,
) -> Result<Vec<Litter>> {
    let mut litters = Vec::new();
    let mut left = plan.mutants;
    for round in 0_u64.. {
        for name in plan.assemblies {
            if left == 0 {
                return Ok(litters);
            }
            let here = named(set, name)?;
            let methods = here.assembly().methods().filter(|method| slots.contains(&(*name, method.token.as_raw())));
            // A small plan takes methods from everywhere, not the first ones only.
            let step = slots.len().div_ceil(plan.mutants).max(1);
            let methods: Vec<Method> = methods.step_by(step).take(left).collect();
            let seed = plan.seed.wrapping_add(round);
            let mutants = match plan.source {
                Source::Mutated => mutants(&here, &methods, seed)?,
                Source::Generated => generated(&here, &here, &methods, seed)?,
                Source::GeneratedAlone => {
                    let mut alone = Assemblies::new();
                    alone.add(Assembly::open(framework.join(format!("{name}.dll")))?);
                    generated(&here, &named(&alone, name)?, &methods, seed)?
                }
            };
            left -= mutants.len().min(left);
            litters.push(Litter { assembly: (*name).to_owned(), mutants });
        }
    }
    Ok(litters)
}

fn mutants(here: &InAssembly<'_>, methods: &[Method], seed: u64) -> Result<Vec<Mutant>> {
    let assembly = here.assembly();
    let mut mutator = Mutator::new(assembly, seed);
    let mut verifier = Verifier::new(here);
    let mut all = Vec::new();
    for method in methods {
        let name = assembly.method_name(method.token);
        let context = here.context(*method).with_context(|| format!("{name} has no signature"))?;
        let original = assembly.body_bytes(*method)?.context("a method with an address has a body")?;
        let declared = Body::parse_prefix(original).ok().and_then(|(body, _)| body.max_stack()).unwrap_or_default();
        let (mut body, change, changes_bytes) = mutator.mutate(original)?;
        // A sound body gets the exact max stack; for the others it is not known.
        if verifier.finish(&mut body, &context).is_err() && body.max_stack().is_none() {
            body.set_max_stack(declared.saturating_add(4));
        }
        // A body that cannot be written is not a mutant: the next round makes another change.
        let Ok(mut bytes) = body.encode() else { continue };
        if changes_bytes {
            mutator.bytes(&mut bytes, !body.regions().is_empty());
        }
        let rule = match Body::parse(&bytes) {
            Err(_) => Some("(cannot be parsed)"),
            Ok(body) => rule(&mut verifier, &body, &context),
        };
        all.push(Mutant { name, token: method.token.as_raw(), change, bytes, rule });
    }
    Ok(all)
}

/// Bodies such as the verifier takes that knows `maker`; the verdict is by all that `here` knows.
fn generated(here: &InAssembly<'_>, maker: &InAssembly<'_>, methods: &[Method], seed: u64) -> Result<Vec<Mutant>> {
    let assembly = here.assembly();
    let mut generator = Generator::new(assembly, seed);
    let mut making = Verifier::new(maker);
    let mut verifier = Verifier::new(here);
    let mut all = Vec::new();
    for method in methods {
        let name = assembly.method_name(method.token);
        let context = here.context(*method).with_context(|| format!("{name} has no signature"))?;
        // Where nothing was found in the tries that there are, the next round finds something.
        let Some((body, change)) = generator.generate(&mut making, &context) else { continue };
        let bytes = body.encode().with_context(|| format!("{name}: {change}"))?;
        let rule = rule(&mut verifier, &body, &context);
        all.push(Mutant { name, token: method.token.as_raw(), change, bytes, rule });
    }
    Ok(all)
}

/// The rule that a body breaks, if it breaks one.
fn rule(verifier: &mut Verifier<'_, InAssembly<'_>>, body: &Body, context: &MethodContext) -> Option<&'static str> {
    let errors = verifier.verify(body, context).err()?;
    Some(errors.first().map_or("(too deep)", |error| error.rule.name()))
}
