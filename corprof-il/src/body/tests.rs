//! Bodies made by hand: forms, sections, edits, and bytes that mean no good.

use super::*;
use crate::opcode::Opcode;
use crate::token::Token;

const CATCH: Token = Token::from_raw(0x0100_0001);

fn fat(flags: u8, max_stack: u16, code: &[u8], locals: u32, sections: &[u8]) -> Vec<u8> {
    let mut body = vec![0x03 | flags | if sections.is_empty() { 0 } else { 0x08 }, 0x30];
    body.extend(max_stack.to_le_bytes());
    body.extend((code.len() as u32).to_le_bytes());
    body.extend(locals.to_le_bytes());
    body.extend(code);
    if !sections.is_empty() {
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(sections);
    }
    body
}

/// `try { nop; leave L } finally { endfinally } L: ret`
const TRY_FINALLY: &[u8] = &[0x00, 0xde, 0x01, 0xdc, 0x2a];
const SMALL_SECTION: &[u8] = &[0x01, 16, 0, 0, 2, 0, 0, 0, 3, 3, 0, 1, 0, 0, 0, 0];

fn fat_clause(flags: u32, tried: (u32, u32), handler: (u32, u32), last: u32) -> Vec<u8> {
    [flags, tried.0, tried.1, handler.0, handler.1, last].into_iter().flat_map(u32::to_le_bytes).collect()
}

fn identical(bytes: &[u8]) -> Body {
    let body = Body::parse(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:02x?}"));
    assert_eq!(body.encode().unwrap(), bytes);
    body
}

fn plain(opcode: Opcode) -> Instruction {
    Instruction::new(opcode).unwrap()
}

#[test]
fn bodies_of_all_shapes_come_back_identical() {
    identical(&[0x06, 0x2a]);
    identical(&fat(0, 8, &[0x2a], 0, &[])); // fat, where tiny would do
    identical(&fat(0x10, 3, &[0x00, 0x2a], 0x1100_0001, &[]));
    identical(&fat(0x10, 1, TRY_FINALLY, 0, SMALL_SECTION));
    let body = identical(&fat(0, 1, TRY_FINALLY, 0, SMALL_SECTION));
    assert_eq!(body.regions().len(), 1);
    assert_eq!(body.regions()[0].kind, RegionKind::Finally);
    // A fat section where a small one would do; a length without the section's own header, in both formats.
    let clause = fat_clause(2, (0, 3), (3, 1), 0);
    for length in [28, 24] {
        let mut section = vec![0x41, length, 0, 0];
        section.extend(&clause);
        identical(&fat(0, 1, TRY_FINALLY, 0, &section));
    }
    let mut short = SMALL_SECTION.to_vec();
    short[1] = 12;
    identical(&fat(0, 1, TRY_FINALLY, 0, &short));
    // Two sections, and one of a kind that no runtime reads.
    let mut two = vec![0xc1, 28, 0, 0];
    two.extend(fat_clause(0, (0, 3), (3, 1), CATCH.as_raw()));
    two.extend(SMALL_SECTION);
    assert_eq!(identical(&fat(0, 1, TRY_FINALLY, 0, &two)).regions().len(), 2);
    let mut other = vec![0x82, 8, 0, 0, 1, 2, 3, 4];
    other.extend(SMALL_SECTION);
    identical(&fat(0, 1, TRY_FINALLY, 0, &other));
    // A header of 16 bytes, and flags that mean nothing.
    let mut long = fat(0x40, 1, &[], 0, &[]);
    long[1] = 0x40;
    long[4] = 1;
    long.extend([9, 8, 7, 6, 0x2a]);
    identical(&long);
    // Parts that no rule fixes stay as they are: padding, the reserved bytes, the unused field of a finally clause.
    let mut odd = fat(0, 1, TRY_FINALLY, 0, SMALL_SECTION);
    let padding = 12 + TRY_FINALLY.len();
    odd[padding] = 0xaa;
    odd[padding + 5] = 0xbb;
    odd[padding + 3 + 4 + 8] = 0xcc;
    identical(&odd);
}

#[test]
fn every_opcode_comes_back_identical() {
    for &opcode in Opcode::ALL {
        if opcode.flow() == crate::opcode::Flow::Prefix {
            continue;
        }
        let operand = match opcode.operand() {
            crate::OperandKind::None => 0,
            crate::OperandKind::Int8 | crate::OperandKind::ShortVariable | crate::OperandKind::ShortBranch => 1,
            crate::OperandKind::Variable => 2,
            crate::OperandKind::Int64 | crate::OperandKind::Float64 => 8,
            _ => 4,
        };
        let [high, low] = opcode.code().to_be_bytes();
        let mut code: Vec<u8> = if high == 0 { vec![low] } else { vec![high, low] };
        code.resize(code.len() + operand, 0);
        code.push(0x2a);
        let body = identical(&fat(0, 8, &code, 0, &[]));
        assert_eq!(body.get(body.first().unwrap()).unwrap().opcode(), opcode);
        assert_eq!(body.get(body.first().unwrap()).unwrap().size() + 1, code.len(), "{opcode}");
    }
    // Prefixes in both orders, with and without operands.
    let code = [0xfe, 0x13, 0xfe, 0x12, 1, 0x4a, 0xfe, 0x12, 2, 0xfe, 0x13, 0x4a, 0xfe, 0x19, 7, 0x4a, 0x2a];
    let body = identical(&fat(0, 8, &code, 0, &[]));
    let first = body.get(body.first().unwrap()).unwrap();
    assert_eq!(first.prefixes(), [Prefix::Volatile, Prefix::Unaligned(1)]);
    assert_eq!(body.count(), 4);
}

#[test]
fn bad_bytes_are_named() {
    let problem = |bytes: &[u8]| Body::parse(bytes).map(|body| body.count()).unwrap_err().problem;
    assert_eq!(problem(&[]), ParseProblem::Truncated);
    assert_eq!(problem(&[0x04, 0x2a]), ParseProblem::BadHeader(4));
    assert_eq!(problem(&[0x02]), ParseProblem::NoCode);
    assert_eq!(problem(&[0x06, 0x2a, 0]), ParseProblem::Trailing(1));
    assert_eq!(problem(&[0x06, 0x24]), ParseProblem::UnknownOpcode(0x24));
    assert_eq!(problem(&[0x0a, 0xfe, 0xff]), ParseProblem::UnknownOpcode(0xfeff));
    assert_eq!(problem(&[0x06, 0x20]), ParseProblem::CodeEnds);
    assert_eq!(problem(&[0x0a, 0xfe, 0x13]), ParseProblem::PrefixAtEnd);
    // Into an instruction, between a prefix and its instruction, before the code, after it.
    assert_eq!(problem(&[0x12, 0x2b, 0xff, 0x00, 0x2a]), ParseProblem::BadTarget(1));
    assert_eq!(problem(&[0x1a, 0x2b, 0x02, 0xfe, 0x13, 0x4a, 0x2a]), ParseProblem::BadTarget(4));
    assert_eq!(problem(&[0x0e, 0x2b, 0xfc, 0x2a]), ParseProblem::BadTarget(-2));
    assert_eq!(problem(&[0x0e, 0x2b, 0x01, 0x2a]), ParseProblem::BadTarget(3));
    let section = |at: usize, byte: u8| {
        let mut section = SMALL_SECTION.to_vec();
        section[at] = byte;
        problem(&fat(0, 1, TRY_FINALLY, 0, &section))
    };
    assert_eq!(section(1, 17), ParseProblem::BadSection(17));
    assert_eq!(section(4, 3), ParseProblem::BadClause { clause: 0, flags: 3 });
    assert_eq!(section(8, 0), ParseProblem::BadRange { clause: 0, from: 0, to: 0 });
    assert_eq!(section(8, 2), ParseProblem::BadRange { clause: 0, from: 0, to: 2 });
    assert_eq!(section(8, 9), ParseProblem::BadRange { clause: 0, from: 0, to: 9 });
    let whole = fat(0, 1, TRY_FINALLY, 0, SMALL_SECTION);
    for end in 0..whole.len() {
        assert!(Body::parse(&whole[..end]).is_err(), "{end}");
    }
}

#[test]
fn a_switch_may_have_no_target_or_very_many() {
    for count in [0_u32, 1, 70_000] {
        let mut code = vec![0x16, 0x45];
        code.extend(count.to_le_bytes());
        code.extend((0..count).flat_map(|_| 0_u32.to_le_bytes()));
        code.push(0x2a);
        let body = identical(&fat(0, 1, &code, 0, &[]));
        let switch = body.iter().nth(1).unwrap().1;
        assert_eq!(switch.targets().len(), count as usize);
    }
    assert!(Body::parse(&fat(0, 1, &[0x45, 0xff, 0xff, 0xff, 0x7f, 0x2a], 0, &[])).is_err());
}

/// `br.s L; (count times nop); L: ret`
fn branch_over(count: usize) -> Body {
    let mut body = Body::new();
    let label = body.new_label();
    body.append(Instruction::br(label));
    for _ in 0..count {
        body.append(plain(Opcode::Nop));
    }
    let ret = body.append(plain(Opcode::Ret));
    body.place(label, ret).unwrap();
    body.set_max_stack(8);
    body
}

#[test]
fn branches_grow_when_they_must() {
    let short = branch_over(127).encode().unwrap();
    assert_eq!((short.len(), short[12], short[13]), (12 + 2 + 127 + 1, 0x2b, 127));
    let long = branch_over(128).encode().unwrap();
    assert_eq!((long.len(), long[12]), (12 + 5 + 128 + 1, 0x38));
    // And so do tiny headers.
    assert_eq!(branch_over(60).encode().unwrap()[0] & 3, 2);
    assert_eq!(branch_over(61).encode().unwrap()[0] & 3, 3);
    // Backward: 128 bytes from the end of the branch.
    for (count, opcode) in [(126, 0x2b), (127, 0x38)] {
        let mut body = Body::new();
        let first = body.append(plain(Opcode::Nop));
        let label = body.label_at(first).unwrap();
        (1..count).for_each(|_| _ = body.append(plain(Opcode::Nop)));
        body.append(Instruction::br(label));
        body.set_max_stack(8);
        assert_eq!(body.encode().unwrap()[12 + count], opcode, "{count}");
    }
}

#[test]
fn growing_goes_on_until_it_is_stable() {
    // Each branch spans 61 others and is at its limit: when the last one grows, all before it must, one after another.
    let count = 50_000;
    let mut body = Body::new();
    let branches: Vec<_> = (0..count).map(|_| body.append(plain(Opcode::Nop))).collect();
    for _ in 0..400 {
        body.append(plain(Opcode::Nop));
    }
    let ret = body.append(plain(Opcode::Ret));
    for (at, branch) in branches.iter().enumerate() {
        // 63 branches of 2 bytes lie between, so that 126 bytes are; the last ones jump farther and grow at once.
        let target = branches.get(at + 64).copied().unwrap_or(ret);
        let label = body.label_at(target).unwrap();
        body.replace(*branch, Instruction::br(label)).unwrap();
    }
    body.set_max_stack(8);
    let bytes = body.encode().unwrap();
    let again = Body::parse(&bytes).unwrap();
    assert_eq!(again.encode().unwrap(), bytes);
    assert!(again.iter().take(count).all(|(_, insn)| insn.opcode() == Opcode::Br), "all grow");
    let targets: Vec<_> = again.iter().map(|(id, _)| id).collect();
    for (at, (_, insn)) in again.iter().take(count).enumerate() {
        let wanted = targets.get(at + 64).filter(|_| at + 64 < count).or(targets.last());
        assert_eq!(again.target(insn.targets()[0]).as_ref(), wanted);
    }
}

#[test]
fn inserted_code_belongs_where_the_instruction_is() {
    // 0: nop; 1: br.s 0; 3: ret, with the first two tried.
    let mut body = Body::parse(&fat(0, 1, TRY_FINALLY, 0, SMALL_SECTION)).unwrap();
    let ids: Vec<_> = body.iter().map(|(id, _)| id).collect();
    let [nop, leave, end, ret] = ids[..] else { panic!("{ids:?}") };
    let inserted = body.before(nop).unwrap().push(plain(Opcode::Break)).inserted().unwrap();
    assert_eq!(body.regions()[0].tried, Range { first: inserted, last: leave });
    let label = body.get(leave).unwrap().targets()[0];
    let inserted = body.before(ret).unwrap().push(plain(Opcode::Break)).push(plain(Opcode::Nop)).inserted().unwrap();
    let first = body.prev(inserted).unwrap();
    assert_eq!(body.target(label), Some(first), "what jumped there runs it");
    assert_eq!(
        body.regions()[0].handler,
        Range { first: end, last: end },
        "what is before another region's end is not in it"
    );
    let inserted = body.before(ret).unwrap().without_retargeting().push(plain(Opcode::Nop)).inserted().unwrap();
    assert_eq!(body.target(label), Some(first));
    assert_eq!(body.next(inserted), Some(ret));
    let inserted = body.after(end).unwrap().push(plain(Opcode::Endfinally)).inserted().unwrap();
    assert_eq!(body.regions()[0].handler.last, inserted, "code after the last instruction of a region is in it");
    assert_eq!(body.encode(), Err(EncodeError::NoMaxStack));
    body.set_max_stack(1);
    let encoded = body.encode_mapped().unwrap();
    assert_eq!(encoded.map, [(0, 1), (1, 2), (3, 4), (4, 9)]);
    assert_eq!(Body::parse(&encoded.bytes).unwrap().count(), 9);
}

#[test]
fn code_outside_of_a_region_is_run_once() {
    // try { L: nop; br.s L; leave M } finally { endfinally } M: ret, entered by br.s L from before.
    let code = [0x2b, 0x00, 0x00, 0x2b, 0xfd, 0xde, 0x01, 0xdc, 0x2a];
    let section = [0x01, 16, 0, 0, 2, 0, 2, 0, 5, 7, 0, 1, 0, 0, 0, 0];
    let mut body = Body::parse(&fat(0, 1, &code, 0, &section)).unwrap();
    let ids: Vec<_> = body.iter().map(|(id, _)| id).collect();
    let region = body.region_ids().next().unwrap();
    let inserted = body.outside(region).unwrap().push(plain(Opcode::Break)).inserted().unwrap();
    let target = |body: &Body, id| body.target(body.get(id).unwrap().targets()[0]);
    assert_eq!(target(&body, ids[0]), Some(inserted), "from outside");
    assert_eq!(target(&body, ids[2]), Some(ids[1]), "from inside");
    assert_eq!(body.regions()[0].tried.first, ids[1]);
}

#[test]
fn instructions_go_and_leave_no_hole() {
    let mut body = Body::parse(&fat(0, 1, TRY_FINALLY, 0, SMALL_SECTION)).unwrap();
    let ids: Vec<_> = body.iter().map(|(id, _)| id).collect();
    body.remove(ids[0]).unwrap();
    assert_eq!(body.regions()[0].tried.first, ids[1]);
    assert!(matches!(body.remove(ids[1]), Err(EditError::EmptyRegion(_))));
    assert!(matches!(body.remove(ids[3]), Err(EditError::NeededAtEnd(_))));
    assert!(matches!(body.remove(ids[0]), Err(EditError::NoSuchInstruction(_))));
    assert!(body.get(ids[0]).is_none());
    assert!(body.before(ids[0]).is_err());
    let region = body.region_ids().next().unwrap();
    body.remove_region(region).unwrap();
    body.set_max_stack(0);
    assert_eq!(Body::parse(&body.encode().unwrap()).unwrap().regions().len(), 0);
}

#[test]
fn a_filter_ends_right_before_its_handler() {
    // 0: leave | filter 1: pop 2: ldc 3: endfilter | handler 4: pop 5: leave | finally 6: endfinally | 7: ret
    let mut body = Body::new();
    let exit = body.new_label();
    let code = [
        Instruction::leave(exit),
        plain(Opcode::Pop),
        Instruction::ldc_i4(1),
        plain(Opcode::Endfilter),
        plain(Opcode::Pop),
        Instruction::leave(exit),
        plain(Opcode::Endfinally),
        plain(Opcode::Ret),
    ];
    let ids: Vec<_> = code.into_iter().map(|insn| body.append(insn)).collect();
    body.place(exit, ids[7]).unwrap();
    let range = |from: usize, to: usize| Range { first: ids[from], last: ids[to] };
    let filter = RegionKind::Filter { first: ids[1] };
    let filtered = body.add_region(Region::new(filter, range(0, 0), range(4, 5))).unwrap();
    let finally = body.add_region(Region::new(RegionKind::Finally, range(0, 5), range(6, 6))).unwrap();
    assert_eq!(body.part(filtered, Part::Tried), Ok(range(0, 0)));
    assert_eq!(body.part(filtered, Part::Filter), Ok(range(1, 3)));
    assert_eq!(body.part(filtered, Part::Handler), Ok(range(4, 5)));
    assert_eq!(body.part(finally, Part::Filter), Err(EditError::NoSuchPart(finally, Part::Filter)));
    assert_eq!(body.part(RegionId(2), Part::Tried), Err(EditError::NoSuchRegion(RegionId(2))));
    // Whatever is inserted at the border, the filter ends before the handler.
    let _ = body.before(ids[4]).unwrap().push(plain(Opcode::Nop));
    assert_eq!(body.part(filtered, Part::Filter), Ok(range(1, 3)));
    // What is inserted before the last instruction runs last in the filter.
    let last = body.part(filtered, Part::Filter).unwrap().last;
    let mut insert = body.before(last).unwrap();
    let dup = insert.add(plain(Opcode::Dup));
    let pop = insert.add(plain(Opcode::Pop));
    assert_eq!((body.next(ids[2]), body.next(dup), body.next(pop)), (Some(dup), Some(pop), Some(last)));
    assert_eq!(body.part(filtered, Part::Filter), Ok(range(1, 3)));
    body.set_max_stack(2);
    assert_eq!(identical(&body.encode().unwrap()).regions().len(), 2);
}

#[test]
fn regions_form_a_tree_and_are_written_inner_first() {
    let mut body = Body::new();
    let ids: Vec<_> = (0..12).map(|_| body.append(plain(Opcode::Nop))).collect();
    let range = |from: usize, to: usize| Range { first: ids[from], last: ids[to] };
    let outer = Region::new(RegionKind::Finally, range(0, 8), range(9, 10));
    let inner = Region::new(RegionKind::Catch(CATCH), range(1, 2), range(3, 4));
    let sibling = Region::new(RegionKind::Filter { first: ids[5] }, range(1, 2), range(6, 6));
    let deepest = Region::new(RegionKind::Fault, range(3, 3), range(4, 4));
    body.add_region(outer).unwrap();
    body.add_region(inner).unwrap();
    body.add_region(sibling).unwrap();
    body.add_region(deepest).unwrap();
    let kinds: Vec<_> = body.regions().iter().map(|region| region.kind).collect();
    assert_eq!(
        kinds,
        [RegionKind::Fault, RegionKind::Catch(CATCH), RegionKind::Filter { first: ids[5] }, RegionKind::Finally]
    );
    let top: Vec<_> = body.children(None).map(|(id, _)| id).collect();
    assert_eq!(top, [RegionId(3)]);
    assert_eq!(body.children(Some(RegionId(3))).count(), 2);
    let parent = body.regions()[0].parent().unwrap();
    assert_eq!((parent.region, parent.part), (RegionId(1), Part::Handler));
    let crossing = Region::new(RegionKind::Finally, range(8, 9), range(11, 11));
    assert!(matches!(body.add_region(crossing), Err(EditError::NotNested(_))));
    let backward = Region::new(RegionKind::Finally, range(2, 1), range(11, 11));
    assert_eq!(body.add_region(backward), Err(EditError::BadRange));
    body.set_max_stack(1);
    let bytes = body.encode().unwrap();
    let again = identical(&bytes);
    assert_eq!(again.regions().len(), 4);
    assert_eq!(again.regions()[0].parent(), Some(parent));
}

#[test]
fn another_operand_leaves_the_stack_as_it_is() {
    // ldc.i4.s 5; pop; call; br.s to the end; ret
    let mut body = Body::parse(&fat(0, 3, &[0x1f, 5, 0x26, 0x28, 1, 0, 0, 0x0a, 0x2b, 0, 0x2a], 0, &[])).unwrap();
    let ids: Vec<InsnId> = body.iter().map(|(id, _)| id).collect();
    let six = Instruction::with(Opcode::Ldc_I4_S, Operand::Int8(6)).unwrap();
    body.replace(ids[0], six).unwrap();
    assert_eq!(body.max_stack(), Some(3));
    body.encode().unwrap();
    for (id, insn) in [(ids[1], plain(Opcode::Nop)), (ids[2], body.get(ids[2]).unwrap().clone())] {
        body.replace(id, insn).unwrap();
        assert_eq!(body.max_stack(), None, "it may take another number of values");
        body.set_max_stack(3);
    }
}

#[test]
fn a_small_section_grows_when_its_clauses_do() {
    let mut body = Body::parse(&fat(0, 1, TRY_FINALLY, 0, SMALL_SECTION)).unwrap();
    let first = body.first().unwrap();
    for _ in 0..252 {
        _ = body.before(first).unwrap().push(plain(Opcode::Nop));
    }
    body.set_max_stack(1);
    let section = |body: &Body| {
        let bytes = body.encode().unwrap();
        let code = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        bytes[(12 + code).next_multiple_of(4)]
    };
    assert_eq!(section(&body), 0x01);
    _ = body.before(first).unwrap().push(plain(Opcode::Nop));
    body.set_max_stack(1);
    assert_eq!(section(&body), 0x41);
}

#[test]
fn text_shows_regions_labels_and_names() {
    let body = Body::parse(&fat(0x10, 1, TRY_FINALLY, 0x1100_0002, SMALL_SECTION)).unwrap();
    let expected = "\
.maxstack 1
.locals init 0x11000002
.try { // region 0
  IL_0000: nop
  IL_0001: leave.s IL_0004
}
finally { // region 0
  IL_0003: endfinally
}
IL_0004: ret
";
    assert_eq!(body.display().to_string(), expected);
    let names = |token: Token| (token == Token::from_raw(0x0a00_0001)).then(|| "Console::WriteLine".to_owned());
    let body = Body::parse(&fat(0, 1, &[0x28, 1, 0, 0, 0x0a, 0xfe, 0x14, 0x28, 2, 0, 0, 0x0a, 0x2a], 0, &[])).unwrap();
    let text = body.display_with(&names).to_string();
    assert!(text.contains("IL_0000: call Console::WriteLine\n"), "{text}");
    assert!(text.contains("IL_0005: tail. call 0x0a000002\n"), "{text}");
}
