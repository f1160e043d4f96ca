//! Where the generations of a heap are. Objects elsewhere are never collected: string literals, types' own objects. The
//! runtime tells of no root of theirs, and not where they are.

use corprof_nettrace::events::{Event, Value};

/// The event of a range of a generation.
const RANGE: u32 = 23;

/// The ranges of the generations, as collections have told them.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds the range of an event of the runtime, if it is one. What a generation has reserved is its own.
    pub(super) fn event(&mut self, event: &Event<'_>) -> bool {
        if event.id() != RANGE {
            return false;
        }
        let number = |name: &str| event.field(name).and_then(Value::as_u64);
        if let (Some(start), Some(length)) = (number("RangeStart"), number("RangeReservedLength")) {
            self.0.push((start, start.saturating_add(length)));
        }
        true
    }

    /// Beginnings and lengths of what is in no range. None if no range was told.
    pub(super) fn gaps(mut self) -> Vec<(u64, u64)> {
        self.0.sort_unstable();
        let mut gaps = Vec::new();
        let mut free = 0;
        for (start, end) in &self.0 {
            if *start > free {
                gaps.push((free, start - free));
            }
            free = free.max(*end);
        }
        if !self.0.is_empty() {
            gaps.push((free, u64::MAX - free));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn gaps_are_what_no_range_has() {
        let ranges = Ranges(vec![(100, 200), (400, 450), (150, 300), (300, 350)]);
        assert_eq!(ranges.gaps(), [(0, 100), (350, 50), (450, u64::MAX - 450)]);
        assert_eq!(Ranges::default().gaps(), []);
    }
}
