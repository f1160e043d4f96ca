//! The lines of awaits.
//!
//! A method that the runtime itself suspends goes on at an address that belongs to the IL of the await, by the map of
//! its compiler. Of a state machine the number of the await is known; `MoveNext` stores it before it returns, behind
//! the call that gets the awaiter. Where any of this is not exactly so, or the PDB has no line of its own for the
//! await, there is no answer.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use corprof_export::SourceLines;
use corprof_il::file::{Assemblies, Assembly, InAssembly, Method};
use corprof_il::{Body, InsnId, Opcode, Operand, Token};

/// Bytes of an assembly that is read.
const LARGEST: u64 = 64 << 20;
/// The ends of the names of fields with the state, of C# and Visual Basic.
const STATES: [&str; 2] = ["::<>1__state", "::$State"];
/// The most instructions between the call that gets the awaiter and the storing of the state: some ten, and more if the
/// compiler keeps values for later.
const FAR: usize = 60;

/// An await of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Await {
    /// By its offset in the IL.
    Offset(u32),
    /// By its number in the state machine whose `MoveNext` the method is.
    State(i32),
}

/// Finds the lines of awaits, and where methods begin.
#[derive(Debug, Default)]
pub(crate) struct Awaits {
    lines: SourceLines,
    /// An assembly each.
    modules: HashMap<PathBuf, Option<Assemblies>>,
    /// The offsets of the awaits by their numbers, of `MoveNext` methods.
    machines: HashMap<(PathBuf, u32), HashMap<i32, u32>>,
}

impl Awaits {
    /// The file and line at which a method begins.
    pub(crate) fn begin(&mut self, module: &Path, token: u32) -> Option<(String, u32)> {
        let (file, line) = self.lines.of_method(module, token)?;
        Some((file.to_owned(), line))
    }

    /// The file and line of an await.
    pub(crate) fn line(&mut self, module: &Path, token: u32, place: Await) -> Option<(String, u32)> {
        let offset = match place {
            Await::Offset(offset) => offset,
            Await::State(state) => self.offset(module, token, state)?,
        };
        let (file, line) = self.lines.of_own_offset(module, token, offset)?;
        Some((file.to_owned(), line))
    }

    fn offset(&mut self, module: &Path, token: u32, state: i32) -> Option<u32> {
        // Most assemblies have no PDB, and need not be read.
        self.lines.of_method(module, token)?;
        let key = (module.to_owned(), token);
        if let Some(known) = self.machines.get(&key) {
            return known.get(&state).copied();
        }
        let assemblies = self.modules.entry(module.to_owned()).or_insert_with(|| read(module)).as_ref();
        let offsets = assemblies.and_then(|all| offsets(&all.iter().next()?, token)).unwrap_or_default();
        let found = offsets.get(&state).copied();
        self.machines.insert(key, offsets);
        found
    }
}

fn read(module: &Path) -> Option<Assemblies> {
    if fs::metadata(module).ok()?.len() > LARGEST {
        return None;
    }
    let mut assemblies = Assemblies::new();
    assemblies.add(Assembly::open(module).ok()?);
    Some(assemblies)
}

/// The offsets of the awaits of a `MoveNext` by their numbers.
fn offsets(here: &InAssembly<'_>, token: u32) -> Option<HashMap<i32, u32>> {
    let assembly = here.assembly();
    let method: Method = assembly.methods().find(|method| method.token.token() == Token::from_raw(token))?;
    let (body, _) = Body::parse_prefix(assembly.body_bytes(method).ok()??).ok()?;
    Some(awaits(&body, |token| here.token_name(token)))
}

/// The same of a body. What is stored twice is left out.
fn awaits(body: &Body, name: impl Fn(Token) -> Option<String>) -> HashMap<i32, u32> {
    let mut found: HashMap<i32, Option<u32>> = HashMap::new();
    for (id, instruction) in body.iter() {
        let Operand::Token(field) = instruction.operand() else { continue };
        let is_state = instruction.opcode() == Opcode::Stfld
            && name(*field).is_some_and(|name| STATES.iter().any(|state| name.ends_with(state)));
        let Some((state, before)) = is_state.then(|| stored(body, id)).flatten().filter(|(state, _)| *state >= 0)
        else {
            continue;
        };
        let offset = awaiter(body, before, &name);
        found.entry(state).and_modify(|known| *known = None).or_insert(offset);
    }
    found.into_iter().filter_map(|(state, offset)| Some((state, offset?))).collect()
}

/// The number that is stored: by `ldc`, and usually by `dup` and `stloc` after it, into a local variable as well.
fn stored(body: &Body, store: InsnId) -> Option<(i32, InsnId)> {
    let mut id = body.prev(store)?;
    if body.get(id)?.as_stloc().is_some() {
        id = body.prev(id)?;
        if body.get(id)?.opcode() != Opcode::Dup {
            return None;
        }
        id = body.prev(id)?;
    }
    Some((body.get(id)?.as_ldc_i4()?, id))
}

/// The offset of the last call of `GetAwaiter` before an instruction.
fn awaiter(body: &Body, before: InsnId, name: &impl Fn(Token) -> Option<String>) -> Option<u32> {
    let earlier = std::iter::successors(Some(before), |id| body.prev(*id)).take(FAR);
    let mut calls = earlier.filter(|id| {
        let instruction = body.get(*id);
        let token = instruction.and_then(|instruction| match instruction.operand() {
            Operand::Token(token) => Some(*token),
            _ => None,
        });
        token.and_then(name).is_some_and(|name| name.contains("::GetAwaiter(") || name.contains("::GetAwaiter<"))
    });
    body.origin(calls.next()?)
}

#[cfg(test)]
mod tests {
    use corprof_il::Instruction;

    use super::*;

    const STATE: u32 = 0x0400_0001;
    const OTHER: u32 = 0x0400_0002;
    const GETS: u32 = 0x0A00_0003;

    fn name(token: Token) -> Option<String> {
        let name = match token.as_raw() {
            STATE => "int32 Shop/<Load>d__0::<>1__state",
            OTHER => "int32 Shop/<Load>d__0::count",
            GETS => "instance valuetype TaskAwaiter Task::GetAwaiter()",
            _ => return None,
        };
        Some(name.to_owned())
    }

    fn token(opcode: Opcode, raw: u32) -> Instruction {
        Instruction::with(opcode, Operand::Token(Token::from_raw(raw))).unwrap()
    }

    /// What a compiler makes of an await.
    fn add_await(body: &mut Body, state: i32) {
        body.append(token(Opcode::Callvirt, GETS));
        body.append(Instruction::stloc(1));
        body.append(Instruction::ldarg(0));
        body.append(Instruction::ldc_i4(state));
        body.append(Instruction::new(Opcode::Dup).unwrap());
        body.append(Instruction::stloc(0));
        body.append(token(Opcode::Stfld, STATE));
    }

    fn found(mut body: Body) -> Vec<(i32, u32)> {
        body.append(Instruction::new(Opcode::Ret).unwrap());
        body.set_max_stack(8);
        let parsed = Body::parse(&body.encode().unwrap()).unwrap();
        let mut found: Vec<_> = awaits(&parsed, name).into_iter().collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn awaits_are_found_by_the_states_that_are_stored() {
        let mut machine = Body::new();
        // The end of a run stores -1, and what is stored elsewhere does not matter.
        add_await(&mut machine, -1);
        add_await(&mut machine, 0);
        machine.append(Instruction::ldc_i4(1));
        machine.append(token(Opcode::Stfld, OTHER));
        add_await(&mut machine, 1);
        let first = 5 + 1 + 1 + 1 + 1 + 1 + 5;
        assert_eq!(found(machine), [(0, first), (1, 2 * first + 6)]);
    }

    #[test]
    fn what_is_not_certain_is_not_told() {
        let mut twice = Body::new();
        add_await(&mut twice, 3);
        add_await(&mut twice, 3);
        assert_eq!(found(twice), []);
        let mut without = Body::new();
        without.append(Instruction::ldarg(0));
        without.append(Instruction::ldc_i4(0));
        without.append(token(Opcode::Stfld, STATE));
        assert_eq!(found(without), [], "no awaiter");
    }
}
