//! Level 1: where control may go, prefixes, and where instructions may stand. Looked at in dead code as well.

use super::facts::Frame;
use super::regions::{Context, Contexts};
use super::{Report, Rule};
use crate::body::{Instruction, Operand, Part, Prefix, RegionKind};
use crate::opcode::{Flow, Opcode};

pub(super) fn check(report: &mut Report<'_>, frame: &Frame, contexts: &Contexts, places: &[u32]) {
    let body = report.body;
    let order = report.order;
    for (place, id) in order.iter().enumerate() {
        let place = place as u32;
        let Some(insn) = body.get(*id) else { continue };
        let next = order.get(place as usize + 1).and_then(|id| body.get(*id));
        if !insn.prefixes().is_empty() {
            prefixes(report, place, insn, next);
        }
        variables(report, place, insn, frame);
        let flow = insn.opcode().flow();
        if flow == Flow::Next && contexts.all.is_empty() && next.is_some() && insn.opcode() != Opcode::Arglist {
            continue;
        }
        let goes_on = matches!(flow, Flow::Next | Flow::Conditional);
        if goes_on && next.is_none() {
            report.add(
                Rule::MethodFallthrough,
                Some(place),
                "the end of the code",
                "an instruction that does not go on",
            );
        }
        check_place(report, place, insn, contexts, frame);
        if contexts.all.is_empty() {
            continue;
        }
        for target in insn.targets() {
            if let Some(target) = body.target(*target).and_then(|id| places.get(id.0 as usize)) {
                branch(report, contexts, place, *target, insn.opcode().is_leave());
            }
        }
        if goes_on && next.is_some() {
            fall_through(report, contexts, place);
        }
    }
}

/// The innermost part that two are in.
fn common(contexts: &Contexts, a: Option<u32>, b: Option<u32>) -> Option<u32> {
    if a == b {
        return a;
    }
    let of_a: Vec<u32> = contexts.around(a).map(|(number, _)| number).collect();
    contexts.around(b).map(|(number, _)| number).find(|number| of_a.contains(number))
}

const fn is_catch(context: &Context) -> bool {
    matches!(context.kind, RegionKind::Catch(_) | RegionKind::Filter { .. })
}

fn branch(report: &mut Report<'_>, contexts: &Contexts, from: u32, to: u32, is_leave: bool) {
    let source = contexts.at(from);
    let target = contexts.at(to);
    if source == target && !is_leave {
        return;
    }
    let around = common(contexts, source, target);
    let mut left_catch = None;
    for (_, left) in contexts.around(source).take_while(|(number, _)| Some(*number) != around) {
        let rule = match (left.part, is_leave) {
            (Part::Tried, true) => continue,
            (Part::Tried, false) => Rule::BranchOutOfTry,
            (Part::Handler, true) if is_catch(left) => {
                left_catch = Some(left.region);
                continue;
            }
            (Part::Handler | Part::Filter, true) => Rule::LeaveOutOfFinally,
            (Part::Handler | Part::Filter, false) => Rule::BranchOutOfHandler,
        };
        report.add(rule, Some(from), format!("a branch out of region {}", left.region), "one that stays inside");
    }
    for (_, entered) in contexts.around(target).take_while(|(number, _)| Some(*number) != around) {
        let rule = match entered.part {
            Part::Tried if entered.start == to => continue,
            // A catch handler may leave into the code that it protects.
            Part::Tried if is_leave && left_catch == Some(entered.region) => continue,
            Part::Tried => Rule::BranchIntoTry,
            Part::Handler | Part::Filter => Rule::BranchIntoHandler,
        };
        report.add(
            rule,
            Some(from),
            format!("a branch into region {}", entered.region),
            "one to its first instruction",
        );
    }
}

fn fall_through(report: &mut Report<'_>, contexts: &Contexts, place: u32) {
    let to = place + 1;
    let source = contexts.at(place);
    let target = contexts.at(to);
    if source == target && contexts.around(source).next().is_none_or(|(_, context)| context.start != to) {
        return;
    }
    let around = common(contexts, source, target);
    for (_, left) in contexts.around(source).take_while(|(number, _)| Some(*number) != around) {
        report.add(
            Rule::FallthroughOutOfRegion,
            Some(place),
            format!("code that runs out of region {}", left.region),
            "leave, endfinally, endfilter, throw or a branch",
        );
    }
    for (_, entered) in contexts.around(target).take_while(|(number, _)| Some(*number) != around) {
        if entered.part != Part::Tried {
            let found = format!("code that runs into a handler of region {}", entered.region);
            report.add(Rule::FallthroughIntoHandler, Some(place), found, "a branch or an end before it");
        }
    }
}

/// Checks an instruction that is allowed in some places only.
fn check_place(report: &mut Report<'_>, place: u32, insn: &Instruction, contexts: &Contexts, frame: &Frame) {
    let here = contexts.at(place);
    let inner = || here.and_then(|number| contexts.get(number));
    match insn.opcode() {
        Opcode::Ret => {
            for (_, context) in contexts.around(here) {
                let rule = if context.part == Part::Tried { Rule::ReturnFromTry } else { Rule::ReturnFromHandler };
                report.add(rule, Some(place), format!("ret in region {}", context.region), "leave, and ret outside");
            }
        }
        Opcode::Jmp if here.is_some() => {
            report.add(Rule::BadJmp, Some(place), "jmp in a region", "jmp outside of all regions");
        }
        Opcode::Endfilter => {
            let is_last = inner().is_some_and(|context| context.part == Part::Filter && context.end == place + 1);
            if !is_last {
                let found = "endfilter that is not the last instruction of a filter";
                report.add(Rule::EndfilterOutsideFilter, Some(place), found, "it at the end of a filter only");
            }
        }
        Opcode::Endfinally if !inner().is_some_and(|context| context.part == Part::Handler && !is_catch(context)) => {
            let found = "endfinally elsewhere";
            report.add(Rule::EndfinallyOutsideHandler, Some(place), found, "it in a finally or fault handler");
        }
        Opcode::Rethrow => {
            // Tried code inside of a catch handler may rethrow as well; another handler or filter may not.
            let handler = contexts.around(here).find(|(_, context)| context.part != Part::Tried);
            if !handler.is_some_and(|(_, context)| context.part == Part::Handler && is_catch(context)) {
                report.add(Rule::RethrowOutsideCatch, Some(place), "rethrow elsewhere", "it in a catch handler");
            }
        }
        Opcode::Localloc => {
            if let Some((_, context)) = contexts.around(here).find(|(_, context)| context.part != Part::Tried) {
                let found = format!("localloc in a handler or filter of region {}", context.region);
                report.add(Rule::LocallocInHandler, Some(place), found, "it in no handler");
            }
        }
        Opcode::Arglist if !frame.is_vararg => {
            report.add(Rule::ArglistWithoutVarArg, Some(place), "a fixed number of arguments", "a vararg method");
        }
        _ => {}
    }
    let is_tail = insn.prefixes().contains(&Prefix::Tail);
    if is_tail && here.is_some() {
        report.add(Rule::TailCallInRegion, Some(place), "tail. in a region", "tail. outside of all regions");
    }
}

fn variables(report: &mut Report<'_>, place: u32, insn: &Instruction, frame: &Frame) {
    use Opcode as O;
    let number = match *insn.operand() {
        Operand::Variable(number) => number,
        Operand::None => match insn.opcode() {
            O::Ldarg_0 | O::Ldloc_0 | O::Stloc_0 => 0,
            O::Ldarg_1 | O::Ldloc_1 | O::Stloc_1 => 1,
            O::Ldarg_2 | O::Ldloc_2 | O::Stloc_2 => 2,
            O::Ldarg_3 | O::Ldloc_3 | O::Stloc_3 => 3,
            _ => return,
        },
        _ => return,
    };
    let is_argument = matches!(
        insn.opcode(),
        O::Ldarg_0
            | O::Ldarg_1
            | O::Ldarg_2
            | O::Ldarg_3
            | O::Ldarg_S
            | O::Ldarga_S
            | O::Starg_S
            | O::Ldarg
            | O::Ldarga
            | O::Starg
    );
    let (rule, count, what) = if is_argument {
        (Rule::UnrecognizedArgumentNumber, frame.arguments.len(), "arguments")
    } else {
        (Rule::UnrecognizedLocalNumber, frame.locals.len(), "local variables")
    };
    if usize::from(number) >= count {
        report.add(rule, Some(place), number.to_string(), format!("one of {count} {what}"));
    }
}

fn prefixes(report: &mut Report<'_>, place: u32, insn: &Instruction, next: Option<&Instruction>) {
    use Opcode as O;
    let opcode = insn.opcode();
    let code = opcode.code();
    let is_indirect = (O::Ldind_I1.code()..=O::Stind_R8.code()).contains(&code) || opcode == O::Stind_I;
    let is_access = is_indirect || matches!(opcode, O::Ldfld | O::Stfld | O::Ldobj | O::Stobj | O::Initblk | O::Cpblk);
    for (number, prefix) in insn.prefixes().iter().enumerate() {
        let is_repeated = insn.prefixes().iter().take(number).any(|other| other.opcode() == prefix.opcode());
        let fits = match *prefix {
            Prefix::Unaligned(alignment) => is_access && matches!(alignment, 1 | 2 | 4),
            Prefix::Volatile => is_access || matches!(opcode, O::Ldsfld | O::Stsfld),
            Prefix::Tail => matches!(opcode, O::Call | O::Calli | O::Callvirt),
            Prefix::Constrained(_) => matches!(opcode, O::Callvirt | O::Call | O::Ldftn),
            // .NET 8 refuses a tail call that is `readonly.`.
            Prefix::Readonly => {
                opcode == O::Ldelema
                    || matches!(opcode, O::Call | O::Callvirt) && !insn.prefixes().contains(&Prefix::Tail)
            }
            Prefix::No(_) => {
                report.add(Rule::NoPrefixUnknown, Some(place), "no.", "a prefix that runtimes know");
                true
            }
        };
        if is_repeated || !fits {
            let found = format!("{}{}", if is_repeated { "a second " } else { "" }, prefix.opcode());
            report.add(Rule::BadPrefix, Some(place), found, "a prefix with a meaning here");
        }
        if *prefix == Prefix::Tail && next.is_none_or(|next| next.opcode() != O::Ret) {
            let found = next.map_or("the end", |next| next.opcode().name());
            report.add(Rule::TailCallWithoutRet, Some(place), found, "ret after the tail call");
        }
    }
}
