//! Hostile bytes: mutations of valid ones, made from a seed. The tests of corprof-diagnostics use this file too.

use fastrand::Rng;

/// Numbers at which lengths and counts go wrong.
const ODD: [u32; 10] = [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, u32::MAX];

/// A few changes to one of the seeds, sometimes with a part of another.
pub(crate) fn mutated(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[rng.usize(..seeds.len())].clone();
    for _ in 0..rng.usize(1..6) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..9) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => bytes[at] = rng.u8(..),
            3 | 4 => {
                let number = ODD[rng.usize(..ODD.len())].to_le_bytes();
                let width = [1, 2, 3, 4][rng.usize(..4)];
                bytes.iter_mut().skip(at).zip(number.into_iter().take(width)).for_each(|(to, from)| *to = from);
            }
            5 => {
                let end = (at + rng.usize(1..16)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let extra = rng.usize(1..16);
                let filler = rng.u8(..);
                bytes.splice(at..at, std::iter::repeat_n(filler, extra));
            }
            7 => {
                let end = (at + rng.usize(1..200)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = rng.usize(..=bytes.len());
                bytes.splice(to..to, part);
            }
            _ => {
                let other = &seeds[rng.usize(..seeds.len())];
                bytes.truncate(at);
                bytes.extend(&other[rng.usize(..other.len())..]);
            }
        }
    }
    bytes
}
