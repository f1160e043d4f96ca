//! From parts in order of arrival to a graph in order of addresses.
//!
//! Each step frees the memory that the next does not need: this and the order of steps keep the peak below the
//! analysis's.

use crate::addresses::Addresses;
use crate::classes::Shape;
use crate::graph::{NONE, WeakEdge};
use crate::{Class, HeapGraph, Losses, ObjectId, Root, RootKind};

use super::chunks::Chunks;
use super::{Described, GraphBuilder, PendingRoot, TooLarge};

pub(super) fn finish(builder: GraphBuilder) -> Result<HeapGraph, TooLarge> {
    let GraphBuilder { title, taken, numbers, shape_numbers, class_numbers, mut losses, too_large, .. } = builder;
    if let Some(error) = too_large {
        return Err(error);
    }
    drop((numbers, shape_numbers, class_numbers));

    let (classes, shapes, new_shape) = sorted_shapes(builder.classes, builder.shapes, &builder.shape_of);
    let by_address = by_address(&builder.addresses, &builder.shape_of);
    let addresses = compact(&by_address, builder.addresses);
    let shape_of: Vec<u32> =
        by_address.iter().map(|&number| new_shape[builder.shape_of.get(number as usize) as usize]).collect();
    let mut place = vec![NONE; builder.shape_of.len()];
    for (index, &number) in by_address.iter().enumerate() {
        place[number as usize] = index as u32;
    }
    drop((by_address, builder.shape_of, new_shape));

    let ephemerons = placed_ephemerons(builder.ephemerons, &place, &mut losses);
    let (offsets, targets, weak) = rows(shape_of.len(), &place, builder.references, &ephemerons, &mut losses);
    drop(place);
    let size = |index: usize| shapes[shape_of[index] as usize].size;
    let frozen = frozen_roots(&builder.frozen, &addresses);
    let roots = placed_roots(builder.roots, frozen, &addresses, size, &mut losses);
    Ok(HeapGraph { title, taken, addresses, shapes, shape_of, offsets, targets, weak, roots, classes, losses })
}

/// Classes that have objects, and shapes, both sorted; and for each old shape its new number.
fn sorted_shapes(
    described: Vec<Described>,
    shapes: Vec<Shape>,
    shape_of: &Chunks<u32>,
) -> (Vec<Class>, Vec<Shape>, Vec<u32>) {
    let mut has_objects = vec![false; shapes.len()];
    shape_of.iter().filter(|&shape| shape != NONE).for_each(|shape| has_objects[shape as usize] = true);
    let mut is_used = vec![false; described.len()];
    for (shape, _) in shapes.iter().zip(&has_objects).filter(|&(_, &has)| has) {
        is_used[shape.class as usize] = true;
    }

    let class = |Described { key, facts, method }| {
        let (name, assembly, instance_size) = facts.unwrap_or_else(|| (format!("(class {key:#x})"), String::new(), 0));
        Class { assembly, name, key, instance_size, method }
    };
    let used = described.into_iter().enumerate().filter(|&(old, _)| is_used[old]);
    let mut classes: Vec<(Class, usize)> = used.map(|(old, described)| (class(described), old)).collect();
    classes.sort_unstable();
    let mut new_class = vec![NONE; is_used.len()];
    for (new, &(_, old)) in classes.iter().enumerate() {
        new_class[old] = new as u32;
    }

    let used = shapes.iter().enumerate().filter(|&(old, _)| has_objects[old]);
    let mut sorted: Vec<(Shape, usize)> =
        used.map(|(old, shape)| (Shape { class: new_class[shape.class as usize], size: shape.size }, old)).collect();
    sorted.sort_unstable();
    let mut new_shape = vec![NONE; shapes.len()];
    for (new, &(_, old)) in sorted.iter().enumerate() {
        new_shape[old] = new as u32;
    }
    (
        classes.into_iter().map(|(class, _)| class).collect(),
        sorted.into_iter().map(|(shape, _)| shape).collect(),
        new_shape,
    )
}

/// The numbers of reported objects in the order of their addresses.
fn by_address(addresses: &Chunks<u64>, shape_of: &Chunks<u32>) -> Vec<u32> {
    let count = shape_of.iter().filter(|&shape| shape != NONE).count();
    let mut sorted = Vec::with_capacity(count);
    sorted.extend((0..shape_of.len() as u32).filter(|&number| shape_of.get(number as usize) != NONE));
    sorted.sort_unstable_by_key(|&number| addresses.get(number as usize));
    sorted
}

fn compact(by_address: &[u32], addresses: Chunks<u64>) -> Addresses {
    let all = || by_address.iter().map(|&number| addresses.get(number as usize));
    let mut compact = Addresses::new(Addresses::shift_for(all()));
    for address in all() {
        compact.push(address);
    }
    compact.shrink();
    compact
}

/// Ephemerons by key, value and table, each once.
fn placed_ephemerons(pending: Vec<(u32, u32, u32)>, place: &[u32], losses: &mut Losses) -> Vec<(u32, u32, u32)> {
    let mut placed = Vec::with_capacity(pending.len());
    for (key, value, table) in pending {
        let has_table = table != NONE;
        let table = if has_table { place[table as usize] } else { NONE };
        let key = place[key as usize];
        let value = place[value as usize];
        if key == NONE || value == NONE || (has_table && table == NONE) {
            losses.unknown_ephemerons += 1;
        } else {
            placed.push((key, value, table));
        }
    }
    placed.sort_unstable();
    placed.dedup();
    placed
}

/// The compressed rows: of each object the references, sorted, then the values of its ephemerons.
fn rows(
    objects: usize,
    place: &[u32],
    references: Chunks<(u32, u32)>,
    ephemerons: &[(u32, u32, u32)],
    losses: &mut Losses,
) -> (Vec<u32>, Vec<u32>, Vec<WeakEdge>) {
    // Two slots ahead: after the counts are summed, `offsets[i + 1]` is the beginning of row i, and serves as the place
    // of its next edge until it is the end of the row.
    let mut offsets = vec![0_u32; objects + 2];
    for (from, to) in references.iter() {
        match (place[from as usize], place[to as usize]) {
            (NONE, _) => losses.unknown_sources += 1,
            (_, NONE) => losses.unknown_targets += 1,
            (from, _) => offsets[from as usize + 2] += 1,
        }
    }
    ephemerons.iter().for_each(|&(key, ..)| offsets[key as usize + 2] += 1);
    let mut sum = 0;
    for offset in &mut offsets {
        sum += *offset;
        *offset = sum;
    }

    let mut targets = vec![0; sum as usize];
    let mut put = |from: u32, to: u32| {
        let next = &mut offsets[from as usize + 1];
        targets[*next as usize] = to;
        *next += 1;
        *next - 1
    };
    for (from, to) in references.iter() {
        let from = place[from as usize];
        let to = place[to as usize];
        if from != NONE && to != NONE {
            put(from, to);
        }
    }
    drop(references);
    let weak = ephemerons.iter().map(|&(key, value, table)| WeakEdge { edge: put(key, value), table });
    let mut weak: Vec<WeakEdge> = weak.collect();
    weak.shrink_to_fit();
    offsets.pop();

    let mut rest = weak.as_slice();
    for row in offsets.windows(2) {
        let in_row = rest.partition_point(|weak| weak.edge < row[1]);
        rest = &rest[in_row..];
        targets[row[0] as usize..row[1] as usize - in_row].sort_unstable();
    }
    (offsets, targets, weak)
}

/// A root for each object in these ranges, by their beginnings and lengths.
fn frozen_roots(ranges: &[(u64, u64)], addresses: &Addresses) -> Vec<Root> {
    let mut roots = Vec::new();
    for &(start, length) in ranges {
        let end = start.saturating_add(length);
        let first = match addresses.at_or_below(start) {
            Some(index) if addresses.get(index) == start => index,
            Some(index) => index + 1,
            None => 0,
        };
        let inside = (first..addresses.len()).take_while(|&index| addresses.get(index) < end);
        roots.extend(inside.map(|index| Root { object: ObjectId(index as u32), kind: RootKind::Frozen, name: None }));
    }
    roots
}

fn placed_roots(
    pending: Vec<PendingRoot>,
    frozen: Vec<Root>,
    addresses: &Addresses,
    size: impl Fn(usize) -> u64,
    losses: &mut Losses,
) -> Vec<Root> {
    let mut roots = frozen;
    roots.reserve_exact(pending.len());
    for PendingRoot { address, is_interior, kind, name } in pending {
        let found = addresses.at_or_below(address).filter(|&index| {
            let distance = address - addresses.get(index);
            distance == 0 || (is_interior && distance < size(index))
        });
        match found {
            Some(index) => roots.push(Root { object: ObjectId(index as u32), kind, name }),
            None => losses.unknown_roots += 1,
        }
    }
    roots.sort_unstable();
    roots.dedup();
    roots.shrink_to_fit();
    roots
}
