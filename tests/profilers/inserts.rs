//! Inserts calls without `unsafe`: for `live/inserts.rs`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how it fails")]
#![forbid(unsafe_code)]

use corprof::edit::{CallArgument, CallProblem, EditError, MethodEdit, Refusal};
use corprof::metadata::{Constant, MethodDef};
use corprof::prelude::*;
use corprof_il::body::{Part, RegionKind};
use corprof_il::{InsnId, Opcode};

/// The first instruction with this opcode.
fn find(edit: &MethodEdit<'_>, opcode: Opcode) -> InsnId {
    edit.body().iter().find(|(_, insn)| insn.opcode() == opcode).unwrap().0
}

/// Inserts calls of `Log` into the methods of the program `Inserted`.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B01", no_export)]
struct Inserts;

impl Inserts {
    fn edit(name: &str, edit: &mut MethodEdit<'_>) -> Result<(), EditError> {
        let [note, number, count] = ["Note", "Number", "Count"].map(|name| edit.static_method("Steps.Log", name));
        let note = note?;
        let number = number?;
        let count = count?;
        let first = edit.body().first().unwrap();
        match name {
            "Add" => {
                edit.call_before(first, number, &["adds".into(), CallArgument::Argument(1)])?;
                eprintln!("inserts| Add: {} returns", edit.call_before_returns(note, &["Add returns".into()])?);
            }
            "Sum" => {
                let values = edit.static_method("Steps.Log", "Values")?;
                let [this, numbers, pair] = [0, 1, 2].map(CallArgument::Argument);
                edit.call_before(first, values, &[pair, numbers, this.clone(), Constant::Null.into()])?;
                edit.call_before(first, count, &[this])?;
                edit.call_before(first, count, &[Constant::Null.into()])?;
                // The sum and the element are on the stack.
                let element = find(edit, Opcode::Ldelem_I4);
                edit.call_after(element, number, &["sum".into(), CallArgument::Local(0)])?;
                edit.call_before(element, note, &["element".into()])?;
            }
            "Tried" => {
                for region in edit.body().region_ids().collect::<Vec<_>>() {
                    let handler = match edit.body().region(region).unwrap().kind {
                        RegionKind::Catch(_) => "catch",
                        _ => "finally",
                    };
                    let tried = format!("end of what has a {handler}").into();
                    let exits = edit.call_before_exits(region, Part::Tried, note, &[tried])?;
                    let end = format!("end of {handler}").into();
                    let of_handler = edit.call_before_exits(region, Part::Handler, note, &[end])?;
                    eprintln!("inserts| Tried: {handler} {exits} {of_handler}");
                }
                edit.call_before_returns(number, &["Tried returns".into(), CallArgument::Argument(0)])?;
            }
            "Filtered" => {
                let is_filter = |kind| matches!(kind, RegionKind::Filter { .. });
                let region =
                    edit.body().region_ids().find(|id| is_filter(edit.body().region(*id).unwrap().kind)).unwrap();
                let argument = CallArgument::Argument(0);
                edit.call_before_exits(region, Part::Filter, number, &["end of filter".into(), argument.clone()])?;
                edit.call_before_exits(region, Part::Handler, number, &["end of filtered".into(), argument])?;
                // The exception is on the stack.
                let part = edit.body().part(region, Part::Filter)?;
                edit.call_before(part.first, note, &["filter".into()])?;
                let part = edit.body().part(region, Part::Handler)?;
                edit.call_before(part.first, note, &["filtered".into()])?;
            }
            "OnStack" => {
                for (id, _) in edit.body().clone().iter().filter(|(_, insn)| insn.opcode() == Opcode::Call) {
                    edit.call_before(id, note, &["before a call".into()])?;
                    edit.call_after(id, count, &[CallArgument::Argument(1)])?;
                }
            }
            "Switched" => {
                let numbers = edit.static_method("Steps.Log", "Numbers")?;
                let arguments: [CallArgument; 12] = [
                    true.into(),
                    Constant::Char(0xffff).into(),
                    i8::MIN.into(),
                    u8::MAX.into(),
                    i16::MIN.into(),
                    u16::MAX.into(),
                    i32::MIN.into(),
                    u32::MAX.into(),
                    i64::MIN.into(),
                    u64::MAX.into(),
                    0.5_f32.into(),
                    (-0.25_f64).into(),
                ];
                edit.call_before(first, numbers, &arguments)?;
                eprintln!("inserts| Switched: {} returns", edit.call_before_returns(note, &["Switched".into()])?);
            }
            _ => {}
        }
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Inserts {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let name = cx.names().function(function);
        let name = name.as_str().split('(').next().unwrap();
        let Some((class, name)) = name.rsplit_once('.') else { return };
        if ["Steps.Worker", "Steps.Program"].contains(&class)
            && let Err(error) = cx.edit_once(function, |edit| Self::edit(name, edit))
        {
            eprintln!("inserts| {name}: {error}");
        }
    }
}

/// Inserts calls of `Landed` into the methods of the program `Jumps`, which end by tail calls and by a `jmp`.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B02", no_export)]
struct AtEnds;

impl AtEnds {
    fn problem(answer: Result<(), EditError>) -> CallProblem {
        match answer {
            Err(EditError::Call { problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    }

    fn edit(name: &str, edit: &mut MethodEdit<'_>) -> Result<(), EditError> {
        let landed: MethodDef = edit.static_method("Jumps", "Landed")?;
        let arguments = [CallArgument::Constant(Constant::Int32(7))];
        let first = edit.body().first().unwrap();
        let at_returns = edit.call_before_returns(landed, &arguments);
        match name {
            "Jump" => {
                assert!(matches!(at_returns, Err(EditError::Refused(Refusal::Jmp))), "{at_returns:?}");
                let after = Self::problem(edit.call_after(first, landed, &arguments));
                assert!(matches!(after, CallProblem::NeverGoesOn(_, Opcode::Jmp)), "{after}");
                edit.call_before(first, landed, &arguments)?;
            }
            "Shared" | "Down" => {
                assert!(matches!(at_returns, Err(EditError::Refused(Refusal::TailCall))), "{at_returns:?}");
                let tail = edit.body().iter().find(|(_, insn)| !insn.prefixes().is_empty()).unwrap().0;
                let ret = edit.body().next(tail).unwrap();
                for answer in [edit.call_after(tail, landed, &arguments), edit.call_before(ret, landed, &arguments)] {
                    assert_eq!(Self::problem(answer), CallProblem::AfterTailCall(tail));
                }
                edit.call_before(tail, landed, &arguments)?;
                if name == "Shared" {
                    assert_eq!(edit.drop_tail_calls(), 1);
                    assert_eq!(edit.call_before_returns(landed, &arguments)?, 1);
                }
            }
            "Landed" => {
                let EditError::Call { problem, .. } = at_returns.unwrap_err() else { panic!("another error") };
                assert_eq!(problem, CallProblem::Recursive);
            }
            _ => return Ok(()),
        }
        eprintln!("inserts| {name}: edited");
        Ok(())
    }
}

#[callbacks]
impl Callbacks for AtEnds {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let name = cx.names().function(function);
        if let Some((name, _)) = name.as_str().strip_prefix("Jumps.").and_then(|name| name.split_once('('))
            && let Err(error) = cx.edit_once(function, |edit| Self::edit(name, edit))
        {
            eprintln!("inserts| {name}: {error}");
        }
    }
}

corprof::export!(Inserts, AtEnds);
