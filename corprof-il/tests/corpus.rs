//! Real assemblies, where there are some: every body comes back identical and verifies, and no mutated one does harm.
//!
//! Looks for assemblies in the folders of `CORPROF_IL_CORPUS` (separated by colons), else for .NET 8's in the cache.
//! Finding none is said aloud, and is not a failure. `CORPROF_IL_MUTANTS` says how often each body is mutated. Whole
//! frameworks are for `corprof il check`.

#![allow(clippy::unwrap_used, reason = "that is how it fails")]

use std::path::PathBuf;

use corprof_il::Body;
use corprof_il::file::{Assemblies, Assembly, InAssembly};
use corprof_il::signature::{MethodSignature, Signature, Type};
use corprof_il::token::{Table, Token, TypeDef, TypeRef};
use corprof_il::verify::{Category, Dispatch, Resolve, Verifier};

const SEED: u64 = 0x00c0_ffee;

fn folders() -> Vec<PathBuf> {
    if let Some(folders) = std::env::var_os("CORPROF_IL_CORPUS") {
        return std::env::split_paths(&folders).collect();
    }
    let cache = std::env::home_dir().unwrap_or_default().join(".cache/corprof");
    vec![cache.join("dotnet-8.0.4-linux-x64/shared/Microsoft.NETCore.App/8.0.4")]
}

/// Some assemblies that name each other's types: a few, as this is a debug build.
fn corpus() -> Assemblies {
    let mut set = Assemblies::new();
    for folder in folders() {
        for name in ["System.Private.CoreLib", "System.Runtime", "System.Collections", "System.Linq", "System.Net.Http"]
        {
            if let Ok(assembly) = Assembly::open(folder.join(format!("{name}.dll"))) {
                set.add(assembly);
            }
        }
    }
    if set.iter().next().is_none() {
        eprintln!("skipped: there are no assemblies in {:?}", folders());
    }
    set
}

/// Every so many of the methods with a body, with its bytes from the first one on.
fn bodies<'a>(
    here: &'a InAssembly<'_>,
    every: usize,
) -> impl Iterator<Item = (corprof_il::file::Method, &'a [u8])> + use<'a> {
    let assembly = here.assembly();
    assembly.methods().step_by(every).filter_map(|method| Some((method, assembly.body_bytes(method).ok()??)))
}

#[test]
fn bodies_come_back_identical_and_verify() {
    let mut count = 0;
    for here in corpus().iter() {
        let mut verifier = Verifier::new(&here);
        for (method, bytes) in bodies(&here, 7) {
            count += 1;
            let name = || here.assembly().method_name(method.token);
            let (body, length) = Body::parse_prefix(bytes).unwrap_or_else(|error| panic!("{}: {error}", name()));
            assert_eq!(body.encode().unwrap(), bytes[..length], "{}", name());
            let context = here.context(method).unwrap_or_else(|| panic!("{}: no signature", name()));
            if let Err(errors) = verifier.verify(&body, &context) {
                panic!("{}: {}", name(), errors[0]);
            }
            assert!(!body.display().to_string().is_empty());
        }
    }
    println!("{count} bodies");
    assert!(count > 1000 || corpus().iter().next().is_none(), "{count} bodies only");
}

#[test]
fn signatures_come_back_identical() {
    for here in corpus().iter() {
        for (token, blob) in here.assembly().signatures().step_by(5) {
            let encoded = match token.table() {
                Some(Table::TypeSpec) => Type::decode(blob).unwrap().encode(),
                Some(Table::MethodDef) => MethodSignature::decode(blob).unwrap().encode(),
                _ => Signature::decode(blob).unwrap().encode(),
            };
            assert_eq!(encoded.as_deref(), Ok(blob), "{token}");
        }
    }
}

#[test]
fn mutated_bodies_neither_panic_nor_lie() {
    let mut random = fastrand::Rng::with_seed(SEED);
    let rounds = std::env::var("CORPROF_IL_MUTANTS").ok().and_then(|number| number.parse().ok()).unwrap_or(6);
    let mut tried = 0;
    let mut parsed = 0;
    let mut verified = 0;
    for here in corpus().iter() {
        let mut verifier = Verifier::new(&here);
        for (method, bytes) in bodies(&here, 23) {
            let Ok((body, length)) = Body::parse_prefix(bytes) else { continue };
            let Some(context) = here.context(method) else { continue };
            drop(body);
            for _ in 0..rounds {
                let mut mutant = bytes[..length].to_vec();
                for _ in 0..random.usize(1..3) {
                    let at = random.usize(..mutant.len());
                    mutant[at] = match random.u8(..4) {
                        0 => mutant[at] ^ (1 << random.u8(..8)),
                        1 => mutant[random.usize(..length)],
                        _ => random.u8(..),
                    };
                }
                tried += 1;
                let Ok((mut body, length)) = Body::parse_prefix(&mutant) else { continue };
                parsed += 1;
                assert_eq!(body.encode().unwrap(), mutant[..length], "seed {SEED:#x}: what was parsed comes back");
                let verdict = verifier.verify(&body, &context);
                let _ = body.display().to_string();
                if verdict.is_err() {
                    continue;
                }
                verified += 1;
                // An edit that changes nothing that matters leaves a sound body sound, and is read back as it was.
                let id = body.at_origin(0).unwrap();
                let nop = corprof_il::Instruction::new(corprof_il::Opcode::Nop).unwrap();
                _ = body.before(id).unwrap().push(nop);
                verifier.finish(&mut body, &context).unwrap();
                let encoded = body.encode().unwrap();
                assert_eq!(Body::parse(&encoded).unwrap().count(), body.count());
                verifier.verify(&Body::parse(&encoded).unwrap(), &context).unwrap();
            }
        }
    }
    println!("{tried} mutants: {parsed} parsed, {verified} verified");
    let is_empty = corpus().iter().next().is_none();
    assert!(is_empty || (parsed > 100 && verified > 100), "{tried} mutants: {parsed} parsed, {verified} verified");
}

#[test]
fn damaged_files_are_refused_or_read() {
    let mut random = fastrand::Rng::with_seed(SEED);
    for folder in folders() {
        let Ok(bytes) = std::fs::read(folder.join("System.Linq.dll")) else { continue };
        for _ in 0..40 {
            let mut bytes = bytes.clone();
            for _ in 0..200 {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            // The headers and tables lie in few bytes of many: these are hit on purpose.
            for _ in 0..2 {
                let at = random.usize(..1024);
                bytes[at] = random.u8(..);
            }
            let Ok(assembly) = Assembly::parse(bytes) else { continue };
            let mut set = Assemblies::new();
            set.add(assembly);
            for here in set.iter() {
                let mut verifier = Verifier::new(&here);
                for (method, bytes) in bodies(&here, 11) {
                    if let (Ok((body, _)), Some(context)) = (Body::parse_prefix(bytes), here.context(method)) {
                        let _ = verifier.verify(&body, &context);
                    }
                }
            }
        }
    }
}

/// The method of an assembly that has this name, the first of its overloads.
fn method_called(here: &InAssembly<'_>, name: &str) -> Token {
    let assembly = here.assembly();
    let found = assembly.methods().find(|method| assembly.method_name(method.token) == name);
    found.ok_or(name).unwrap().token.token()
}

/// The definition of a type.
fn type_called(here: &InAssembly<'_>, name: &str) -> Token {
    let tokens = (1..1 << 16).map(|row| TypeDef::from_raw(TypeDef::NIL.as_raw() | row));
    let mut names = tokens.map_while(|token| Some((token, here.assembly().type_path(token)?)));
    let found = names.find(|(_, path)| path.len() == 1 && path[0] == name);
    found.ok_or(name).unwrap().0.token()
}

#[test]
fn files_say_what_values_can_do() {
    let set = corpus();
    let Some(here) = set.iter().find(|here| here.assembly().name() == "System.Private.CoreLib") else { return };
    let ty = |name| type_called(&here, name);
    for name in ["System.Span`1", "System.ArgIterator", "System.TypedReference", "System.Text.SpanRuneEnumerator"] {
        assert!(here.is_by_ref_like(ty(name)), "{name}");
    }
    for name in ["System.Decimal", "System.String", "System.Memory`1"] {
        assert!(!here.is_by_ref_like(ty(name)), "{name}");
    }
    let dispatch = |name, method| here.dispatch(Some(ty(name)), method_called(&here, method));
    assert_eq!(dispatch("System.Decimal", "System.Object::GetHashCode"), Dispatch::Own);
    assert_eq!(dispatch("System.Decimal", "System.Object::GetType"), Dispatch::Boxed);
    assert_eq!(dispatch("System.Decimal", "System.ValueType::ToString"), Dispatch::Own);
    assert_eq!(dispatch("System.Decimal", "System.Decimal::Equals"), Dispatch::Own);
    assert_eq!(dispatch("System.Decimal", "System.Decimal::get_Scale"), Dispatch::Boxed);
    assert_eq!(dispatch("System.Decimal", "System.IFormattable::ToString"), Dispatch::Own);
    // By way of `INumber`, with an explicit implementation.
    assert_eq!(dispatch("System.Decimal", "System.IComparable::CompareTo"), Dispatch::Own);
    assert_eq!(dispatch("System.Decimal", "System.IDisposable::Dispose"), Dispatch::Boxed);
    assert_eq!(dispatch("System.Decimal", "System.Text.StringBuilder::Clear"), Dispatch::Unrelated);
    assert_eq!(dispatch("System.Decimal", "System.DateTime::ToLocalTime"), Dispatch::Unrelated);
    let any = |method| here.dispatch(None, method_called(&here, method));
    assert_eq!(any("System.Object::GetHashCode"), Dispatch::Unknown);
    assert_eq!(any("System.IDisposable::Dispose"), Dispatch::Unknown);
    assert_eq!(any("System.Text.StringBuilder::Clear"), Dispatch::Unrelated);
    assert_eq!(here.native_int(), None);
    assert!(!here.assembly().has_native_code());
}

/// In a running application a module is alone.
#[test]
fn an_assembly_alone_knows_value_types_by_its_signatures() {
    for folder in folders() {
        let Ok(assembly) = Assembly::open(folder.join("System.Net.Http.dll")) else { continue };
        let mut set = Assemblies::new();
        set.add(assembly);
        for here in set.iter() {
            let rows = (1..1 << 16).map(|row| Token::from_raw(TypeRef::NIL.as_raw() | row));
            let references = rows.map_while(|token| Some((token, here.token_name(token)?)));
            let category = |token| here.type_info(token).map(|info| info.category);
            let all: Vec<_> = references.map(|(token, name)| (name, category(token))).collect();
            let of = |wanted: &str| all.iter().find(|(name, _)| name.ends_with(wanted)).and_then(|(_, found)| *found);
            assert_eq!(of("]System.DateTimeOffset"), Some(Category::ValueOrEnum));
            assert_eq!(of("]System.IO.Stream"), Some(Category::Reference));
            let mut verifier = Verifier::new(&here);
            for (method, bytes) in bodies(&here, 3) {
                let (body, _) = Body::parse_prefix(bytes).unwrap();
                let name = || here.assembly().method_name(method.token);
                let context = here.context(method).unwrap_or_else(|| panic!("{}: no signature", name()));
                if let Err(errors) = verifier.verify(&body, &context) {
                    panic!("{}: {}", name(), errors[0]);
                }
            }
        }
    }
}

#[test]
fn a_reference_assembly_says_so() {
    let cache = std::env::home_dir().unwrap_or_default().join(".cache/corprof");
    let compilers = std::fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    let references = compilers.map(|path| path.join("csharp/ref/8.0/System.Linq.dll"));
    for path in references.filter(|path| path.exists()) {
        assert!(Assembly::open(path).unwrap().is_reference());
    }
    assert!(corpus().iter().all(|here| !here.assembly().is_reference()));
}
