//! Makes bodies from nothing: instructions of all sorts, with values of all sorts of types, in all places where code
//! can stand, as far as the verifier takes them. Mutants of real bodies are near to what compilers make; these are not.

use corprof_il::body::{Range, Region, RegionKind};
use corprof_il::file::{Assembly, InAssembly};
use corprof_il::token::Token;
use corprof_il::verify::{MethodContext, Verifier};
use corprof_il::{Body, Flow, InsnId, Instruction, Opcode, Operand, OperandKind, Prefix};
use fastrand::Rng;

use super::mutate::Material;

/// Makes bodies for methods of one assembly; the same seed makes the same bodies.
pub(super) struct Generator {
    random: Rng,
    material: Material,
}

/// So many instructions are tried for each one that a body gets.
const TRIES: usize = 200;

/// The most instructions of a body, besides those that its place needs.
const MOST_STEPS: usize = 8;

/// An instruction of a body, or some.
#[derive(Clone)]
enum Step {
    Plain(Instruction),
    /// A branch to what follows, so that the values on the stack go from one block to the next.
    Branch(Opcode),
    /// One of two on each of two paths that meet.
    Either(Instruction, Instruction),
}

/// The sorts of steps. One is chosen before instructions are tried, as the verifier takes some more often than others.
#[derive(Clone, Copy)]
enum Sort {
    Load,
    Either,
    Branch,
    /// Any instruction with such an operand.
    With(OperandKind),
}

const SORTS: [Sort; 20] = [
    Sort::Load,
    Sort::Load,
    Sort::Load,
    Sort::Load,
    Sort::Load,
    Sort::Load,
    Sort::Either,
    Sort::Branch,
    Sort::With(OperandKind::None),
    Sort::With(OperandKind::None),
    Sort::With(OperandKind::None),
    Sort::With(OperandKind::None),
    Sort::With(OperandKind::Type),
    Sort::With(OperandKind::Type),
    Sort::With(OperandKind::Type),
    Sort::With(OperandKind::Method),
    Sort::With(OperandKind::Method),
    Sort::With(OperandKind::Method),
    Sort::With(OperandKind::Field),
    Sort::With(OperandKind::Variable),
];

/// Where the instructions stand.
#[derive(Clone, Copy, Debug)]
enum Place {
    Alone,
    Tried,
    Catch(Token),
    Filter,
    FilterHandler,
    Finally,
    Fault,
}

/// A body under construction, and its branches, whose targets are known at the end.
struct Builder {
    body: Body,
    branches: Vec<(InsnId, Opcode, InsnId)>,
}

impl Builder {
    fn plain(&mut self, opcode: Opcode) -> Option<InsnId> {
        Some(self.body.append(Instruction::new(opcode).ok()?))
    }

    fn steps(&mut self, steps: &[Step]) -> Option<()> {
        let mut to_next = Vec::new();
        for step in steps {
            let first = match step {
                Step::Plain(insn) => self.body.append(insn.clone()),
                Step::Branch(_) => self.plain(Opcode::Nop)?,
                Step::Either(a, b) => {
                    let choice = self.body.append(Instruction::ldloca(0));
                    let branch = self.plain(Opcode::Nop)?;
                    self.body.append(a.clone());
                    let end = self.plain(Opcode::Nop)?;
                    let other = self.body.append(b.clone());
                    self.branches.push((branch, Opcode::Brtrue, other));
                    self.branches.extend(to_next.drain(..).map(|(from, opcode)| (from, opcode, choice)));
                    to_next.push((end, Opcode::Br));
                    continue;
                }
            };
            self.branches.extend(to_next.drain(..).map(|(from, opcode)| (from, opcode, first)));
            if let Step::Branch(opcode) = step {
                to_next.push((first, *opcode));
            }
        }
        // What follows in each place.
        let end = self.plain(Opcode::Nop)?;
        self.branches.extend(to_next.into_iter().map(|(from, opcode)| (from, opcode, end)));
        Some(())
    }

    /// A branch to an instruction that is not there yet.
    fn leave(&mut self, leaves: &mut Vec<InsnId>) -> Option<()> {
        leaves.push(self.plain(Opcode::Nop)?);
        Some(())
    }

    fn done(mut self, leaves: &[InsnId], end: InsnId) -> Option<Body> {
        let leaves = leaves.iter().map(|from| (*from, Opcode::Leave, end));
        for (from, opcode, to) in self.branches.into_iter().chain(leaves) {
            let label = self.body.label_at(to).ok()?;
            self.body.replace(from, Instruction::with(opcode, Operand::Target(label)).ok()?).ok()?;
        }
        Some(self.body)
    }
}

/// The body with these instructions in their place. It ends with `ret`, or with `throw` if the method has a result.
fn body(place: Place, steps: &[Step], locals: Option<Token>, returns: bool) -> Option<Body> {
    use Opcode as O;
    let mut builder = Builder { body: Body::new(), branches: Vec::new() };
    builder.body.set_locals(locals);
    let mut leaves = Vec::new();
    let mut region = None;
    match place {
        Place::Alone => builder.steps(steps)?,
        Place::Tried => {
            let first = builder.plain(O::Nop)?;
            builder.steps(steps)?;
            builder.leave(&mut leaves)?;
            let last = builder.body.last()?;
            let handler = builder.plain(O::Endfinally)?;
            region = Some((RegionKind::Finally, Range { first, last }, handler));
        }
        Place::Catch(_) | Place::Finally | Place::Fault => {
            builder.leave(&mut leaves)?;
            let tried = builder.body.last()?;
            // A handler's first instruction may be a branch target.
            let handler = builder.plain(O::Nop)?;
            builder.steps(steps)?;
            let kind = match place {
                Place::Catch(class) => RegionKind::Catch(class),
                Place::Finally => RegionKind::Finally,
                _ => RegionKind::Fault,
            };
            if let Place::Catch(_) = place {
                builder.leave(&mut leaves)?;
            } else {
                builder.plain(O::Endfinally)?;
            }
            region = Some((kind, Range { first: tried, last: tried }, handler));
        }
        Place::Filter | Place::FilterHandler => {
            builder.leave(&mut leaves)?;
            let tried = builder.body.last()?;
            let first = builder.plain(O::Nop)?;
            if let Place::Filter = place {
                builder.steps(steps)?;
                builder.plain(O::Ldnull)?;
                builder.plain(O::Throw)?;
            } else {
                builder.plain(O::Pop)?;
            }
            builder.plain(O::Ldc_I4_1)?;
            builder.plain(O::Endfilter)?;
            let handler = builder.plain(O::Nop)?;
            if let Place::FilterHandler = place {
                builder.steps(steps)?;
            }
            builder.leave(&mut leaves)?;
            region = Some((RegionKind::Filter { first }, Range { first: tried, last: tried }, handler));
        }
    }
    let last = builder.body.last()?;
    let end = builder.plain(if returns { O::Ret } else { O::Ldnull })?;
    if !returns {
        builder.plain(O::Throw)?;
    }
    let mut body = builder.done(&leaves, end)?;
    if let Some((kind, tried, handler)) = region {
        body.add_region(Region::new(kind, tried, Range { first: handler, last })).ok()?;
    }
    Some(body)
}

impl Generator {
    pub(super) fn new(assembly: &Assembly, seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), material: Material::of(assembly) }
    }

    /// A body that the verifier takes, with its max stack, and its place.
    pub(super) fn generate(
        &mut self,
        verifier: &mut Verifier<'_, InAssembly<'_>>,
        context: &MethodContext,
    ) -> Option<(Body, String)> {
        let place = self.place()?;
        let locals = self.random.choice(&self.material.locals).copied();
        let count = self.random.usize(2..=MOST_STEPS);
        let mut steps = Vec::new();
        for _ in 0..count {
            let sort = self.random.choice(SORTS)?;
            for _ in 0..TRIES {
                let Some(step) = self.step(sort) else { continue };
                steps.push(step);
                let is_taken = |body: &Body| verifier.verify(body, context).is_ok();
                if body(place, &steps, locals, false).as_ref().is_some_and(is_taken) {
                    break;
                }
                steps.pop();
            }
        }
        let mut ending = [true, false].into_iter().filter_map(|returns| body(place, &steps, locals, returns));
        let made = ending.find_map(|mut body| verifier.finish(&mut body, context).is_ok().then_some(body))?;
        Some((made, format!("generated, {place:?}")))
    }

    fn place(&mut self) -> Option<Place> {
        Some(match self.random.u8(..12) {
            0..6 => Place::Alone,
            6 => Place::Tried,
            7 => Place::Catch(self.token(OperandKind::Type)?),
            8 => Place::Filter,
            9 => Place::FilterHandler,
            10 => Place::Finally,
            _ => Place::Fault,
        })
    }

    fn step(&mut self, sort: Sort) -> Option<Step> {
        let one_of = |random: &mut Rng, is_it: &dyn Fn(Opcode) -> bool| {
            random.choice(Opcode::ALL.iter().copied().filter(|opcode| is_it(*opcode)).collect::<Vec<_>>())
        };
        Some(match sort {
            Sort::Load => Step::Plain(self.load()?),
            Sort::Either => Step::Either(self.load()?, self.load()?),
            Sort::Branch => {
                let is_it = |opcode: Opcode| opcode.operand() == OperandKind::Branch && !opcode.is_leave();
                Step::Branch(one_of(&mut self.random, &is_it)?)
            }
            Sort::With(operand) => {
                let is_it = |opcode: Opcode| opcode.operand() == operand && opcode.flow() != Flow::Prefix;
                let opcode = one_of(&mut self.random, &is_it)?;
                let insn = self.instruction(opcode)?;
                Step::Plain(self.prefixed(insn)?)
            }
        })
    }

    /// An instruction that puts a value on the stack and takes none.
    fn load(&mut self) -> Option<Instruction> {
        use Opcode as O;
        let number = u16::from(self.random.u8(..6));
        Some(match self.random.u8(..16) {
            0..4 => Instruction::ldarg(number),
            4..8 => Instruction::ldloc(number),
            8 => Instruction::ldarga(number),
            9 => Instruction::ldloca(number),
            _ => {
                const OTHERS: [Opcode; 12] = [
                    O::Ldnull,
                    O::Ldc_I4_0,
                    O::Ldc_I4,
                    O::Ldc_I8,
                    O::Ldc_R4,
                    O::Ldc_R8,
                    O::Ldstr,
                    O::Ldtoken,
                    O::Ldsfld,
                    O::Ldsflda,
                    O::Ldftn,
                    O::Sizeof,
                ];
                let opcode = self.random.choice(OTHERS)?;
                self.instruction(opcode)?
            }
        })
    }

    fn instruction(&mut self, opcode: Opcode) -> Option<Instruction> {
        const BITS: [u64; 6] = [0, 1, u64::MAX, 0x7fff_ffff, 0x8000_0000, 0x7ff8_0000_0000_0000];
        let bits = self.random.choice(BITS)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "any bits will do")]
        let operand = match opcode.operand() {
            OperandKind::None => Operand::None,
            OperandKind::Int8 => Operand::Int8(bits as i8),
            OperandKind::Int32 => Operand::Int32(bits as i32),
            OperandKind::Int64 => Operand::Int64(bits as i64),
            OperandKind::Float32 => Operand::Float32(bits as u32),
            OperandKind::Float64 => Operand::Float64(bits),
            OperandKind::ShortVariable | OperandKind::Variable => Operand::Variable(self.random.u16(..6)),
            OperandKind::Type
            | OperandKind::Method
            | OperandKind::Field
            | OperandKind::Signature
            | OperandKind::String
            | OperandKind::Token => Operand::Token(self.token(opcode.operand())?),
            OperandKind::UInt8 | OperandKind::ShortBranch | OperandKind::Branch | OperandKind::Switch => return None,
        };
        Instruction::with(opcode, operand).ok()
    }

    /// A token that instructions of this assembly name, or one nearby.
    fn token(&mut self, kind: OperandKind) -> Option<Token> {
        let token = *self.random.choice(self.material.tokens.get(&kind)?)?;
        let is_near = kind != OperandKind::String && self.random.u8(..4) == 0;
        let distance = if is_near { self.random.u32(1..20) } else { 0 };
        Some(Token::from_raw(token.as_raw().wrapping_add(distance)))
    }

    fn prefixed(&mut self, insn: Instruction) -> Option<Instruction> {
        let is_call = matches!(insn.opcode(), Opcode::Call | Opcode::Callvirt | Opcode::Ldftn);
        let prefix = match self.random.u8(..12) {
            0..4 if is_call => Prefix::Constrained(self.token(OperandKind::Type)?),
            4 => self.random.choice([Prefix::Volatile, Prefix::Unaligned(1), Prefix::Readonly])?,
            _ => return Some(insn),
        };
        Some(insn.prefixed([prefix]))
    }
}
