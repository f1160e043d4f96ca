//! Finds where control leaves a method or a part of a region, and inserts code there.

use super::{Body, EditError, InsnId, Instruction, Part, Prefix, Range, RegionId, RegionKind};
use crate::opcode::Opcode;

impl Body {
    /// The `ret` instructions, in order. A method whose every path ends in a `throw` or in a loop has none.
    pub fn returns(&self) -> Vec<InsnId> {
        self.iter().filter(|(_, insn)| insn.opcode() == Opcode::Ret).map(|(id, _)| id).collect()
    }

    /// The instructions of a part of a region, from the first to the last.
    ///
    /// The last instruction of a sound filter is its only `endfilter`, so code inserted [before](Self::before) it sees
    /// the filter's answer on the stack.
    ///
    /// # Errors
    /// [`EditError::NoSuchRegion`]; [`EditError::NoSuchPart`] for the filter of a region that has none.
    pub fn part(&self, region: RegionId, part: Part) -> Result<Range, EditError> {
        let found = self.region(region).ok_or(EditError::NoSuchRegion(region))?;
        match (part, found.kind) {
            (Part::Tried, _) => Ok(found.tried),
            (Part::Handler, _) => Ok(found.handler),
            (Part::Filter, RegionKind::Filter { first }) => {
                // A filter stands right before its handler.
                let last = self.prev(found.handler.first).ok_or(EditError::BadRange)?;
                Ok(Range { first, last })
            }
            (Part::Filter, _) => Err(EditError::NoSuchPart(region, part)),
        }
    }

    /// The instructions by which control comes to the end of a part of a region and leaves it, in order: each `leave`
    /// in it, or in a region inside of it, that goes out of it; its own `endfinally` and `endfilter`. A part that only
    /// an exception leaves, or nothing, has none.
    ///
    /// # Errors
    /// As [`part`](Self::part).
    pub fn exits(&self, region: RegionId, part: Part) -> Result<Vec<InsnId>, EditError> {
        let range = self.part(region, part)?;
        let (order, places) = self.in_order();
        let place = |id: InsnId| places.get(id.0 as usize).copied().unwrap_or(super::NONE);
        let inside = place(range.first)..=place(range.last);
        // The handlers and filters of regions inside have ends of their own.
        let inner: Vec<(u32, u32)> = self
            .region_ids()
            .zip(self.intervals(&places))
            .filter(|(id, _)| *id != region)
            .flat_map(|(_, intervals)| intervals.parts().filter(|(part, _)| *part != Part::Tried).collect::<Vec<_>>())
            .map(|(_, interval)| interval)
            .filter(|(from, to)| inside.contains(from) && inside.contains(&to.saturating_sub(1)))
            .collect();
        let is_own = |at: u32| !inner.iter().any(|(from, to)| (*from..*to).contains(&at));
        let leaves = |id: &InsnId| {
            let (at, Some(insn)) = (place(*id), self.get(*id)) else { return false };
            if !inside.contains(&at) {
                return false;
            }
            match insn.opcode() {
                Opcode::Leave | Opcode::Leave_S => {
                    let target = insn.targets().first().and_then(|label| self.target(*label));
                    target.is_some_and(|target| !inside.contains(&place(target)))
                }
                Opcode::Endfinally => part == Part::Handler && is_own(at),
                Opcode::Endfilter => part == Part::Filter && is_own(at),
                _ => false,
            }
        };
        Ok(order.into_iter().filter(leaves).collect())
    }

    /// Inserts `code` before each `ret`; returns how many there are. Branches to a `ret` run the code. The result is on
    /// the stack meanwhile, so the code takes nothing that it has not put there, and leaves nothing.
    ///
    /// # Errors
    /// [`EditError::TailCall`] and [`EditError::Jmp`]: after these nothing of the method runs. See
    /// [`drop_tail_calls`](Self::drop_tail_calls). The body is as it was.
    pub fn before_returns(&mut self, code: &[Instruction]) -> Result<usize, EditError> {
        for (id, insn) in self.iter() {
            if insn.opcode() == Opcode::Jmp {
                return Err(EditError::Jmp(id));
            }
            if insn.prefixes().contains(&Prefix::Tail) {
                return Err(EditError::TailCall(id));
            }
        }
        let returns = self.returns();
        self.before_each(&returns, code)?;
        Ok(returns.len())
    }

    /// Inserts `code` before each of the [exits](Self::exits) of a part of a region, in the part; returns how many
    /// there are. Branches to an exit run the code. If the exit is a `leave` in a region inside, the `finally` blocks
    /// that it runs come after the code.
    ///
    /// An exception that leaves the part does not run the code: for that, add a fault or finally region.
    ///
    /// # Errors
    /// As [`part`](Self::part).
    pub fn before_exits(&mut self, region: RegionId, part: Part, code: &[Instruction]) -> Result<usize, EditError> {
        let exits = self.exits(region, part)?;
        self.before_each(&exits, code)?;
        Ok(exits.len())
    }

    fn before_each(&mut self, places: &[InsnId], code: &[Instruction]) -> Result<(), EditError> {
        for place in places {
            let mut insert = self.before(*place)?;
            for insn in code {
                insert = insert.push(insn.clone());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Label, Operand, Region};
    use super::*;
    use crate::token::Token;

    fn plain(opcode: Opcode) -> Instruction {
        Instruction::new(opcode).unwrap()
    }

    fn opcodes(body: &Body) -> Vec<Opcode> {
        body.iter().map(|(_, insn)| insn.opcode()).collect()
    }

    /// A label at an instruction that the closure appends.
    fn labelled(body: &mut Body, insn: Instruction) -> (InsnId, Label) {
        let id = body.append(insn);
        (id, body.label_at(id).unwrap())
    }

    #[test]
    fn code_is_inserted_before_each_return_and_branches_run_it() {
        let mut body = Body::new();
        let end = body.new_label();
        body.append(Instruction::ldarg(0));
        body.append(Instruction::with(Opcode::Brtrue_S, Operand::Target(end)).unwrap());
        body.append(plain(Opcode::Ret));
        let last = body.append(plain(Opcode::Ret));
        body.place(end, last).unwrap();
        assert_eq!(body.before_returns(&[plain(Opcode::Break), plain(Opcode::Nop)]), Ok(2));
        use Opcode::{Break, Brtrue_S, Ldarg_0, Nop, Ret};
        assert_eq!(opcodes(&body), [Ldarg_0, Brtrue_S, Break, Nop, Ret, Break, Nop, Ret]);
        let target = body.target(end).unwrap();
        assert_eq!(body.get(target).unwrap().opcode(), Break);
        assert_eq!(body.next(target).and_then(|next| body.next(next)), Some(last));
    }

    #[test]
    fn after_a_tail_call_and_a_jmp_there_is_no_place() {
        let method = Token::from_raw(0x0600_0001);
        let mut body = Body::new();
        let call = body.append(Instruction::call(method).prefixed([Prefix::Tail]));
        body.append(plain(Opcode::Ret));
        let before = body.count();
        assert_eq!(body.before_returns(&[plain(Opcode::Nop)]), Err(EditError::TailCall(call)));
        assert_eq!(body.count(), before);
        body.drop_tail_calls();
        assert_eq!(body.before_returns(&[plain(Opcode::Nop)]), Ok(1));

        let mut body = Body::new();
        let jmp = body.append(Instruction::with(Opcode::Jmp, Operand::Token(method)).unwrap());
        assert_eq!(body.before_returns(&[plain(Opcode::Nop)]), Err(EditError::Jmp(jmp)));
        assert_eq!((body.count(), body.returns()), (1, vec![]));
    }

    /// try { try { leave OUT; leave IN } finally { endfinally } IN: leave OUT } catch { leave OUT } OUT: ret
    fn nested() -> (Body, [InsnId; 5]) {
        let mut body = Body::new();
        let out = body.new_label();
        let within = body.new_label();
        let first = body.append(Instruction::leave(out));
        let second = body.append(Instruction::leave(within));
        let finally = body.append(plain(Opcode::Endfinally));
        let third = body.append(Instruction::leave(out));
        body.place(within, third).unwrap();
        let catch = body.append(plain(Opcode::Pop));
        let fourth = body.append(Instruction::leave(out));
        let ret = body.append(plain(Opcode::Ret));
        body.place(out, ret).unwrap();
        let range = |first, last| Range { first, last };
        body.add_region(Region::new(RegionKind::Finally, range(first, second), range(finally, finally))).unwrap();
        let kind = RegionKind::Catch(Token::from_raw(0x0100_0001));
        body.add_region(Region::new(kind, range(first, third), range(catch, fourth))).unwrap();
        (body, [first, second, finally, third, fourth])
    }

    #[test]
    fn exits_are_what_leaves_the_part_itself() {
        let (body, [first, second, finally, third, fourth]) = nested();
        let [inner, outer] = body.region_ids().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!(body.exits(inner, Part::Tried), Ok(vec![first, second]));
        assert_eq!(body.exits(inner, Part::Handler), Ok(vec![finally]));
        assert_eq!(body.exits(outer, Part::Tried), Ok(vec![first, third]));
        assert_eq!(body.exits(outer, Part::Handler), Ok(vec![fourth]));
        assert_eq!(body.exits(outer, Part::Filter), Err(EditError::NoSuchPart(outer, Part::Filter)));
        let missing = RegionId(2);
        assert_eq!(body.exits(missing, Part::Tried), Err(EditError::NoSuchRegion(missing)));
    }

    #[test]
    fn code_at_the_end_of_a_part_stays_in_the_part() {
        let (mut body, [first, _, finally, third, _]) = nested();
        let [inner, outer] = body.region_ids().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!(body.before_exits(outer, Part::Tried, &[plain(Opcode::Break)]), Ok(2));
        assert_eq!(body.before_exits(inner, Part::Handler, &[plain(Opcode::Break)]), Ok(1));
        // The tried code begins with the inserted code, and the branch to the last `leave` goes there.
        let regions = body.regions();
        assert_eq!((regions[0].tried.first, regions[1].tried.first), (body.first().unwrap(), body.first().unwrap()));
        assert_eq!(body.next(body.first().unwrap()), Some(first));
        assert_eq!(regions[0].handler.first, body.prev(finally).unwrap());
        assert!(body.is_target(body.prev(third).unwrap()) && !body.is_target(third));
        assert_eq!(regions[1].tried.last, third);
    }

    #[test]
    fn a_filter_ends_before_its_handler() {
        let mut body = Body::new();
        let (leave, out) = labelled(&mut body, plain(Opcode::Nop));
        let filter = body.append(plain(Opcode::Pop));
        body.append(Instruction::ldc_i4(0));
        let end = body.append(plain(Opcode::Endfilter));
        let handler = body.append(plain(Opcode::Pop));
        let last = body.append(Instruction::leave(out));
        let ret = body.append(plain(Opcode::Ret));
        body.place(out, ret).unwrap();
        body.replace(leave, Instruction::leave(out)).unwrap();
        let range = |first, last| Range { first, last };
        let kind = RegionKind::Filter { first: filter };
        let region = body.add_region(Region::new(kind, range(leave, leave), range(handler, last))).unwrap();
        assert_eq!(body.part(region, Part::Filter), Ok(range(filter, end)));
        assert_eq!(body.exits(region, Part::Filter), Ok(vec![end]));
        assert_eq!(body.exits(region, Part::Handler), Ok(vec![last]));
        assert_eq!(body.before_exits(region, Part::Filter, &[plain(Opcode::Break)]), Ok(1));
        // The answer of the filter is on the stack meanwhile; the handler still follows the filter.
        assert_eq!(body.part(region, Part::Filter), Ok(range(filter, end)));
        assert_eq!(body.get(body.prev(end).unwrap()).unwrap().opcode(), Opcode::Break);
    }
}
