//! Counts calls in memory.

use std::sync::atomic::{AtomicU64, Ordering};

use corprof_il::body::{EncodeError, InsnId};
use corprof_il::{Body, Instruction, Opcode};

use super::{EditError, MethodEdit};

/// A number that compiled code increments.
///
/// It is read, incremented and written without a lock: calls on several threads at the same time can be counted as one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct CallCounter(AtomicU64);

impl CallCounter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// How many calls were counted.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl MethodEdit<'_> {
    /// Counts the calls of the method: at its entry, before its first instruction. Loops back to there are not counted.
    /// Calls that were inlined into code that is already compiled are not counted either.
    ///
    /// # Errors
    /// None for a body that could be parsed.
    pub fn count_calls(&mut self, counter: &'static CallCounter) -> Result<(), EditError> {
        // The library cannot be unloaded while compiled code has the address: a replaced body prevents a detach.
        let address = std::ptr::from_ref(counter).addr() as i64;
        count_at_entry(self.code_mut(), address)
    }
}

fn count_at_entry(body: &mut Body, address: i64) -> Result<(), EditError> {
    let entry = entry(body)?;
    let mut code = body.before(entry)?.without_retargeting().ldc_i8(address);
    for opcode in [
        Opcode::Conv_U,
        Opcode::Dup,
        Opcode::Ldind_I8,
        Opcode::Ldc_I4_1,
        Opcode::Conv_I8,
        Opcode::Add,
        Opcode::Stind_I8,
    ] {
        code = code.op(opcode)?;
    }
    Ok(())
}

/// The instruction that runs first and is in no region: the first one, or, if tried code begins there, a new one before
/// it, so that loops back to the tried code do not lead into the middle of it.
pub(super) fn entry(body: &mut Body) -> Result<InsnId, EditError> {
    let first = body.first().ok_or(EncodeError::NoCode)?;
    // Inner regions stand before outer ones.
    let regions = body.region_ids().zip(body.regions());
    let outermost = regions.filter(|(_, region)| region.tried.first == first).map(|(id, _)| id).last();
    match outermost {
        Some(region) => Ok(body.outside(region)?.add(Instruction::new(Opcode::Nop)?)),
        None => Ok(first),
    }
}

#[cfg(test)]
mod tests {
    use corprof_il::body::{Range, Region, RegionKind};
    use corprof_il::signature::{CallingConvention, MethodSignature, Primitive, Signature, Type};
    use corprof_il::token::Token;
    use corprof_il::verify::{FieldInfo, MethodContext, MethodInfo, Resolve, TypeInfo, Verifier};

    use super::*;

    struct Nothing;

    impl Resolve for Nothing {
        fn type_info(&self, _: Token) -> Option<TypeInfo> {
            None
        }
        fn type_spec(&self, _: Token) -> Option<Type> {
            None
        }
        fn method(&self, _: Token) -> Option<MethodInfo> {
            None
        }
        fn method_spec(&self, _: Token) -> Option<(Token, Vec<Type>)> {
            None
        }
        fn field(&self, _: Token) -> Option<FieldInfo> {
            None
        }
        fn signature(&self, _: Token) -> Option<Signature> {
            None
        }
        fn has_string(&self, _: Token) -> bool {
            false
        }
    }

    fn counted(mut body: Body) -> (usize, Body) {
        let signature = MethodSignature {
            convention: CallingConvention::Default,
            has_this: false,
            explicit_this: false,
            generic_parameters: 0,
            return_type: Type::Primitive(Primitive::Void),
            parameters: Vec::new(),
            sentinel: None,
        };
        let context = MethodContext::new(None, signature);
        Verifier::new(&Nothing).finish(&mut body, &context).unwrap();
        let before = body.count();
        count_at_entry(&mut body, 1 << 40).unwrap();
        Verifier::new(&Nothing).finish(&mut body, &context).unwrap();
        assert_eq!(body.max_stack(), Some(3));
        body.encode().unwrap();
        (body.count() - before, body)
    }

    #[test]
    fn a_loop_to_the_first_instruction_is_not_counted() {
        let mut body = Body::new();
        let first = body.append(Instruction::ldc_i4(1));
        let start = body.label_at(first).unwrap();
        body.append(Instruction::with(Opcode::Brtrue, corprof_il::Operand::Target(start)).unwrap());
        body.append(Instruction::new(Opcode::Ret).unwrap());
        let (added, body) = counted(body);
        assert_eq!(added, 8);
        assert!(body.is_target(first) && !body.is_target(body.first().unwrap()));
    }

    #[test]
    fn a_loop_around_tried_code_at_the_beginning_is_not_counted() {
        let mut body = Body::new();
        let first = body.append(Instruction::new(Opcode::Nop).unwrap());
        let start = body.label_at(first).unwrap();
        let leave = body.append(Instruction::new(Opcode::Nop).unwrap());
        let handler = body.append(Instruction::new(Opcode::Endfinally).unwrap());
        let after = body.append(Instruction::br(start));
        let target = body.label_at(after).unwrap();
        body.replace(leave, Instruction::leave(target)).unwrap();
        let range = |first, last| Range { first, last };
        body.add_region(Region::new(RegionKind::Finally, range(first, leave), range(handler, handler))).unwrap();
        let (added, body) = counted(body);
        // The counter, and the instruction that the loop goes back to.
        assert_eq!(added, 9);
        assert_eq!(body.regions()[0].tried.first, first);
        let entry = body.prev(first).unwrap();
        assert!(body.is_target(entry) && !body.is_target(body.first().unwrap()));
    }
}
