//! `corprof il dump`: prints method bodies as text.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use corprof_il::file::{InAssembly, Method};
use corprof_il::verify::Verifier;
use corprof_il::{Body, Token};
use serde::Serialize;

use super::set::Set;
use crate::exit::Outcome;
use crate::output;

/// Show the body of a method: regions, names, and the stack before each instruction.
///
/// Name the method by its token (0x06000001), by its full name (Namespace.Type::Method), or by the end of that
/// (Type::Method, Method); all overloads are shown. Names as profilers print them, Namespace.Type.Method(int32), work
/// as well.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof il dump App.dll Program::Main
  corprof il dump App.dll 0x06000001

The comment behind an instruction has the number and types of the values on the stack before it, the top last. An unreachable
instruction has no comment. Breaches of rules follow the body.")]
pub struct Args {
    /// The assembly
    file: PathBuf,

    /// The method
    #[arg(value_name = "NAME|TOKEN")]
    method: String,

    /// A folder of assemblies for type look-ups, such as the framework's
    #[arg(long, value_name = "FOLDER")]
    with: Vec<PathBuf>,

    /// Print a line of JSON for each method: token, method, assembly, bytes, body, refused
    #[arg(long)]
    json: bool,
}

/// If more methods than this match, they are listed and not shown.
const MOST: usize = 20;

/// Runs the command.
///
/// # Errors
/// If the file cannot be read, the method does not exist, or it has no body.
pub(super) fn run(args: &Args) -> Outcome {
    let sets = Set::open(std::slice::from_ref(&args.file), &args.with)?;
    // A single-file application has several.
    let assemblies: Vec<_> = sets.iter().flat_map(Set::meant).map(|meant| meant.assembly).collect();
    let assembly = assemblies.iter().find(|assembly| find(assembly, &args.method).is_ok());
    let assembly = assembly.or(assemblies.first()).context("there is no managed code in it")?;
    let methods = find(assembly, &args.method)?;
    let mut out = output::stdout();
    for method in methods {
        let dump = Dump::of(assembly, method)?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&dump)?)?;
        } else {
            writeln!(out, "{}", dump.text())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn find(here: &InAssembly<'_>, wanted: &str) -> Result<Vec<Method>> {
    let assembly = here.assembly();
    if let Some(digits) = wanted.strip_prefix("0x") {
        let token = u32::from_str_radix(digits, 16).with_context(|| format!("{wanted} is not a token"))?;
        let method = assembly.methods().find(|method| method.token.token() == Token::from_raw(token));
        return method.map(|method| vec![method]).with_context(|| format!("the assembly defines no method {wanted}"));
    }
    let named = |is_it: &dyn Fn(&str) -> bool| -> Vec<Method> {
        assembly.methods().filter(|method| is_it(&assembly.method_name(method.token))).collect()
    };
    let mut found = Vec::new();
    for wanted in [wanted.to_owned(), of_profilers(wanted)] {
        if found.is_empty() {
            found = named(&|name| name == wanted);
        }
        if found.is_empty() {
            found = named(&|name| is_end(name, &wanted));
        }
    }
    let list = |methods: &[Method]| -> String {
        let line = |method: &Method| format!("\n  {} {}", method.token, assembly.method_name(method.token));
        methods.iter().take(MOST).map(line).collect()
    };
    match found.len() {
        0 => bail!("the assembly defines no method {wanted}: is it in another one, or spelt otherwise (Type::.ctor)?"),
        1..=MOST => Ok(found),
        count => bail!("{count} methods are called {wanted}; name one by its token or in full:{}\n  …", list(&found)),
    }
}

/// Whether a method's full name ends with the given name.
fn is_end(name: &str, wanted: &str) -> bool {
    let before = name.strip_suffix(wanted);
    before.is_some_and(|before| before.ends_with("::") || (wanted.contains("::") && before.ends_with(['.', '/'])))
}

/// A name as profilers print it, `Namespace.Outer+Inner.Method(int32)`, as metadata has it:
/// `Namespace.Outer/Inner::Method`.
fn of_profilers(name: &str) -> String {
    let name = name.split('(').next().unwrap_or_default().replace('+', "/");
    let constructor = name.strip_suffix(".ctor").or_else(|| name.strip_suffix(".cctor"));
    let end_of_type = match constructor {
        Some(before) => before.strip_suffix('.').map(str::len),
        None => name.rfind('.'),
    };
    match end_of_type {
        Some(at) if !name.contains("::") => format!("{}::{}", &name[..at], &name[at + 1..]),
        _ => name,
    }
}

/// A method's full description, which is the document of `--json`.
#[derive(Debug, Serialize)]
struct Dump {
    token: String,
    method: String,
    assembly: String,
    /// None, if the method has no body.
    bytes: Option<usize>,
    /// Regions and instructions, with the stack before each.
    body: Option<String>,
    /// The breaches of rules.
    refused: Vec<String>,
}

impl Dump {
    fn of(here: &InAssembly<'_>, method: Method) -> Result<Self> {
        let assembly = here.assembly();
        let names = |token: Token| here.token_name(token);
        let name = names(method.token.token()).unwrap_or_else(|| assembly.method_name(method.token));
        let mut dump = Self {
            token: method.token.token().to_string(),
            method: name.clone(),
            assembly: assembly.name().to_string(),
            bytes: None,
            body: None,
            refused: Vec::new(),
        };
        let Some(bytes) = assembly.body_bytes(method)? else { return Ok(dump) };
        let (body, length) = Body::parse_prefix(bytes).map_err(|error| anyhow!("{name}: {error}"))?;
        let context = here.context(method).with_context(|| format!("{name}: its signature cannot be read"))?;
        let mut verifier = Verifier::new(here);
        let stacks: HashMap<_, _> = verifier.stacks(&body, &context).into_iter().collect();
        let note = |id| {
            let stack = stacks.get(&id)?;
            let hidden = if stack.depth > stack.top.len() { "…, " } else { "" };
            Some(format!("{}: {hidden}{}", stack.depth, stack.top.join(", ")).trim_end_matches([' ', ':']).to_owned())
        };
        dump.bytes = Some(length);
        dump.body = Some(body.display_with_notes(&names, &note).to_string());
        if let Err(errors) = verifier.verify(&body, &context) {
            dump.refused = errors.iter().map(ToString::to_string).collect();
        }
        Ok(dump)
    }

    fn text(&self) -> String {
        let title = format!("// {} in {}\n{}\n", self.token, self.assembly, self.method);
        let (Some(length), Some(body)) = (self.bytes, &self.body) else { return format!("{title}// has no body\n") };
        let refused: String = self.refused.iter().map(|error| format!("// refused: {error}\n")).collect();
        format!("{title}// {length} bytes\n{body}{refused}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_profilers_become_those_of_metadata() {
        assert_eq!(of_profilers("Shop.Order.Pack(Shop.Sku, int32)"), "Shop.Order::Pack");
        assert_eq!(of_profilers("Shop.Order+Line..ctor(int32)"), "Shop.Order/Line::.ctor");
        assert_eq!(of_profilers("Shop.Order..cctor()"), "Shop.Order::.cctor");
        assert_eq!(of_profilers("Shop.Order::Pack"), "Shop.Order::Pack");
        assert_eq!(of_profilers("Pack"), "Pack");
        assert_eq!(of_profilers(".ctor"), ".ctor");
        assert!(is_end("Shop.Order::Pack", "Order::Pack") && is_end("Shop.Order::Pack", "Pack"));
        assert!(!is_end("Shop.Order::Repack", "pack"));
    }
}
