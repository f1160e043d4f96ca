//! How fast traces are read: `cargo run --release -p corprof-nettrace --example throughput -- FILE.nettrace [REPEATS]`,
//! or a FILE.nettrace.xz. The file is read from memory, event after event, with definition, stack and payload looked
//! at.

use std::error::Error;
use std::hint::black_box;
use std::io::Read;
use std::time::Instant;

use corprof_nettrace::Reader;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("which file?")?;
    let mut bytes = std::fs::read(&name)?;
    if name.ends_with(".xz") {
        let packed = std::mem::take(&mut bytes);
        lzma_rust2::XzReader::new(&packed[..], true).read_to_end(&mut bytes)?;
    }
    let repeats: u32 = args.next().map_or(Ok(20), |repeats| repeats.parse())?;
    let mut best = f64::MAX;
    for _ in 0..repeats {
        let start = Instant::now();
        let mut reader = Reader::new(&bytes[..]);
        while let Some(event) = reader.next_event()? {
            black_box((
                event.metadata().event_id,
                event.stack().as_bytes().len(),
                event.payload().len(),
                event.ticks(),
            ));
        }
        let seconds = start.elapsed().as_secs_f64();
        if seconds < best {
            best = seconds;
            let stats = reader.stats();
            let megabytes = bytes.len() as f64 / 1e6;
            let events = stats.events as f64;
            println!("{:.0} MB/s, {:.1} million events/s: {stats:?}", megabytes / best, events / best / 1e6);
        }
    }
    Ok(())
}
