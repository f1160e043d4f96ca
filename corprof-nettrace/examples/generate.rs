//! Writes a recording of processor samples, to measure readers with:
//! `cargo run --release -p corprof-nettrace --example generate -- FILE.nettrace [MEGABYTES [THREADS HZ HOURS
//! [skewed]]]]`.
//!
//! 64 threads of one process have 20,000 distinct stacks of 20 to 60 frames in 4,000 methods, a thousand samples a
//! second each, with a sequence point every second. With HOURS, it ends after these, however large it is: a day of one
//! processor is `day.nettrace 100000 1 100 24`. All stacks come as often as each other; `skewed`, the second one comes
//! half as often as the first, the third one a third as often, and so on.

use std::error::Error;
use std::fs::File;
use std::time::SystemTime;

use corprof_nettrace::events::universal::{Measured, ProcessMapping, ProcessSymbol};
use corprof_nettrace::events::{Provider, Text};
use corprof_nettrace::{Metadata, NewEvent, Thread, Trace, UtcTime, Writer};

const METHODS: u64 = 4_000;
const STACKS: u64 = 20_000;
const BEGIN: u64 = 0x7f00_0000_0000;
const METHOD_SIZE: u64 = 0x100;

/// Numbers that look like chance, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// The number of a stack. Skewed, each is about as likely as one by its number.
    fn stack(&mut self, is_skewed: bool) -> u64 {
        if !is_skewed {
            return self.below(STACKS);
        }
        let part = self.below(1 << 30) as f64 / f64::from(1 << 30);
        ((STACKS + 1) as f64).powf(part) as u64 - 1
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("which file?")?;
    let megabytes: u64 = args.next().map_or(Ok(1_000), |text| text.parse())?;
    let mut number = |usual: u64| args.next().map_or(Ok(usual), |text| text.parse::<u64>());
    let threads = number(64)?;
    let hertz = number(1_000)?;
    let hours = number(1_000_000)?;
    let is_skewed = args.next().is_some_and(|word| word == "skewed");
    let now = UtcTime::from_system_time(SystemTime::now()).ok_or("no clock")?;
    let mut writer = Writer::new(File::create(path)?, &Trace::new(now, 0, 1_000_000_000))?;
    let cpu = Metadata::new(1, Provider::UNIVERSAL_EVENTS.name(), 0, Measured::CPU).with_fields(Measured::fields());
    let mapping = Metadata::new(2, Provider::UNIVERSAL_SYSTEM.name(), ProcessMapping::ID, ProcessMapping::NAME)
        .with_fields(ProcessMapping::fields());
    let symbol = Metadata::new(3, Provider::UNIVERSAL_SYSTEM.name(), ProcessSymbol::ID, ProcessSymbol::NAME)
        .with_fields(ProcessSymbol::fields());
    for definition in [&cpu, &mapping, &symbol] {
        writer.define_event(definition)?;
    }
    for index in 1..=threads {
        let mut thread = Thread::new(index);
        (thread.os_thread_id, thread.process_id) = (Some(5_000 + index), Some(4_711));
        thread.name = Some(format!("worker {index}"));
        writer.define_thread(&thread)?;
    }
    let mut payload = Vec::new();
    ProcessMapping {
        id: 1,
        start_address: BEGIN,
        end_address: BEGIN + METHODS * METHOD_SIZE - 1,
        file_offset: 0,
        file_name: Text::from("/app/Shop.dll"),
        metadata_id: 0,
    }
    .write(&mut payload)?;
    let mut event = NewEvent::new(2, 1, 0);
    event.payload = &payload;
    writer.write(&event)?;
    for method in 0..METHODS {
        let name = format!("Shop.Department{}.Step{method}(int, string)", method % 40);
        let start_address = BEGIN + method * METHOD_SIZE;
        let end_address = start_address + METHOD_SIZE - 1;
        let mut payload = Vec::new();
        ProcessSymbol { id: method + 1, mapping_id: 1, start_address, end_address, name: Text::from(name.as_str()) }
            .write(&mut payload)?;
        let mut event = NewEvent::new(3, 1, 0);
        event.payload = &payload;
        writer.write(&event)?;
    }
    let mut chance = Chance(41);
    let stacks: Vec<Vec<u64>> = (0..STACKS)
        .map(|_| {
            let depth = 20 + chance.below(41);
            (0..depth).map(|_| BEGIN + chance.below(METHODS) * METHOD_SIZE + chance.below(METHOD_SIZE)).collect()
        })
        .collect();
    let mut payload = Vec::new();
    Measured { value: 1 }.write(&mut payload);
    let mut ticks = 0;
    while writer.stats().bytes < megabytes * 1_000_000 && ticks < hours * 3_600_000_000_000 {
        ticks += 1_000_000_000 / hertz;
        for thread in 1..=threads {
            let number = chance.stack(is_skewed);
            let mut event = NewEvent::new(1, thread, ticks);
            event.payload = &payload;
            event.stack = stacks.get(usize::try_from(number)?).map_or(&[], Vec::as_slice);
            writer.write(&event)?;
        }
        if ticks % 1_000_000_000 == 0 {
            writer.sequence_point(ticks)?;
        }
    }
    let stats = writer.stats();
    writer.finish()?;
    println!("{stats:?}");
    Ok(())
}
