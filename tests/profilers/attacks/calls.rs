//! Inserts calls of all methods of a module into some of them, with arguments of all sorts at places of all sorts, as
//! far as it is let.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use corprof::edit::{CallArgument, CallProblem, EditError, MethodEdit};
use corprof::metadata::signature::{MethodSignature, Primitive, Type};
use corprof::metadata::{Constant, MethodDef, TypeDef};
use corprof::prelude::*;
use corprof_il::InsnId;
use corprof_il::body::Part;

/// How often each method is tried as the called one, in each body.
const TRIES: usize = 16;

/// The most calls of a method that are inserted into one body.
const MOST: usize = 4;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }
}

#[derive(Default)]
struct Tally {
    accepted: BTreeSet<String>,
    refused: BTreeMap<String, BTreeSet<String>>,
    inserted: usize,
    tried: usize,
    rejected: usize,
}

/// See the module.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1240", no_export)]
pub(crate) struct Misuses(Mutex<Tally>);

/// A constant of a type, or one of another.
fn constant(random: &mut Random, ty: &Type) -> Constant {
    let bits = [0, 1, 8, u64::MAX, 0x7fff_ffff, 0x8000_0000, 1 << 40][random.below(7)];
    let Type::Primitive(primitive) = ty else { return Constant::Null };
    match primitive {
        Primitive::Bool => Constant::Bool(bits & 1 == 1),
        Primitive::Char => Constant::Char(bits as u16),
        Primitive::Int8 => Constant::Int8(bits as i8),
        Primitive::UInt8 => Constant::UInt8(bits as u8),
        Primitive::Int32 => Constant::Int32(bits as i32),
        Primitive::UInt64 => Constant::UInt64(bits),
        Primitive::Float64 => Constant::Float64(f64::from_bits(bits)),
        Primitive::String => [Constant::Null, Constant::String("libc.so.6".into())][random.below(2)].clone(),
        Primitive::Object => [Constant::Null, Constant::Int64(bits as i64)][random.below(2)].clone(),
        _ => Constant::Int64(bits as i64),
    }
}

fn argument(random: &mut Random, ty: &Type) -> CallArgument {
    let numbers = [3, 11][random.below(2)];
    match random.below(4) {
        0 => CallArgument::Argument(random.below(numbers) as u16),
        1 => CallArgument::Local([random.below(12) as u16, u16::MAX][usize::from(random.below(20) == 0)]),
        _ => constant(random, ty).into(),
    }
}

/// Inserts a call somewhere.
fn insert(
    random: &mut Random,
    edit: &mut MethodEdit<'_>,
    method: MethodDef,
    arguments: &[CallArgument],
) -> Result<(), EditError> {
    let all: Vec<InsnId> = edit.body().iter().map(|(id, _)| id).collect();
    let place = all[random.below(all.len())];
    let regions: Vec<_> = edit.body().region_ids().collect();
    match random.below(8) {
        0 => edit.call_before_returns(method, arguments).map(drop),
        1 if !regions.is_empty() => {
            let part = [Part::Tried, Part::Filter, Part::Handler][random.below(3)];
            edit.call_before_exits(regions[random.below(regions.len())], part, method, arguments).map(drop)
        }
        2..5 => edit.call_after(place, method, arguments),
        _ => edit.call_before(place, method, arguments),
    }
}

impl Misuses {
    fn edit(&self, random: &mut Random, edit: &mut MethodEdit<'_>) -> Result<(), EditError> {
        let mut callees = vec![(String::from("nothing"), MethodDef::NIL, Vec::new())];
        callees.push(("nonsense".into(), MethodDef::from_raw(0x06ff_ffff), Vec::new()));
        callees.push(("no method".into(), MethodDef::from_raw(0x0200_0002), Vec::new()));
        for class in edit.metadata().type_defs()?.into_iter().chain([TypeDef::NIL]) {
            let name = edit.metadata().type_def(class).map(|class| class.name).unwrap_or_default();
            for method in edit.metadata().methods(class)? {
                let props = edit.metadata().method(method)?;
                let parameters = MethodSignature::decode(&props.signature).map_or(Vec::new(), |of| of.parameters);
                callees.push((format!("{name}.{}", props.name), method, parameters));
            }
        }
        for (name, method, parameters) in callees {
            // What the program calls itself may throw.
            if ["Victim", "Base", "Program", "<"].iter().any(|own| name.starts_with(own)) {
                continue;
            }
            let mut inserted = 0;
            for _ in 0..TRIES {
                if inserted == MOST {
                    break;
                }
                let mut arguments: Vec<_> = parameters.iter().map(|ty| argument(random, ty)).collect();
                if random.below(16) == 0 {
                    arguments.push(1_i32.into());
                }
                let answer = insert(random, edit, method, &arguments);
                let mut told = self.0.lock().unwrap();
                told.tried += 1;
                match answer {
                    Ok(()) => {
                        inserted += 1;
                        told.inserted += 1;
                        told.accepted.insert(name.clone());
                    }
                    Err(EditError::Call { problem, .. }) => {
                        // What no other argument and no other place would cure.
                        use CallProblem as P;
                        let is_of_argument =
                            matches!(problem, P::ArgumentCount { .. } | P::ArgumentType { .. } | P::NoVariable(_));
                        let is_of_place = matches!(
                            problem,
                            P::NeverGoesOn(..) | P::AfterTailCall(_) | P::FunctionAddress(..) | P::UnsafeCaller(_)
                        );
                        if !is_of_argument && !is_of_place {
                            told.refused.entry(name.clone()).or_default().insert(problem.to_string());
                        }
                    }
                    Err(EditError::Edit(_)) => {}
                    Err(other) => eprintln!("attacks| another refusal: {name}: {other}"),
                }
            }
        }
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Misuses {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let name = cx.names().function(function);
        if !name.as_str().starts_with("Victim") {
            return;
        }
        let seed: u64 = std::env::var("MISUSES_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let of_name = name.as_str().bytes().fold(seed, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let mut random = Random(of_name.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        if let Err(error) = cx.edit_once(function, |edit| self.edit(&mut random, edit)) {
            self.0.lock().unwrap().rejected += 1;
            eprintln!("attacks| {name}: {error}");
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let told = self.0.lock().unwrap();
        for (name, problems) in &told.refused {
            for problem in problems {
                eprintln!("attacks| refused {name}: {problem}");
            }
        }
        for name in &told.accepted {
            eprintln!("attacks| accepted {name}");
        }
        let Tally { tried, inserted, rejected, .. } = &*told;
        eprintln!("attacks| tried={tried} inserted={inserted} rejected={rejected}");
    }
}
