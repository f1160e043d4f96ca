//! How fast large recordings are read, in how much memory, and how large their pages are. It prints the figures:
//! `cargo test --release -p corprof-cli --test large -- --ignored --nocapture`.

#![cfg(target_os = "linux")]

mod long {
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use anyhow::{Context, Result, ensure};

    /// What a run of the command has taken.
    struct Run {
        wall: Duration,
        /// In milliseconds, as the system counts it.
        processor: u64,
        /// The most kilobytes of memory.
        memory: u64,
    }

    /// Runs the command, and looks at it meanwhile.
    fn run(folder: &Path, arguments: &[&str]) -> Result<Run> {
        let begin = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
        let mut child = command.args(arguments).current_dir(folder).stdout(Stdio::null()).spawn()?;
        let (mut memory, mut processor) = (0, 0);
        let status = loop {
            // Neither tells anything once it has ended.
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
            memory = memory.max(peak(&status).unwrap_or_default());
            processor = processor.max(ticks(&stat).unwrap_or_default() * 10);
            if let Some(status) = child.try_wait()? {
                break status;
            }
            thread::sleep(Duration::from_millis(20));
        };
        ensure!(status.success(), "{arguments:?}: {status}");
        let run = Run { wall: begin.elapsed(), processor, memory };
        println!("{arguments:?}: {:.2?}, {} ms of processor time, {} MB", run.wall, processor, memory / 1024);
        Ok(run)
    }

    fn peak(status: &str) -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.parse().ok()
    }

    /// User and system time, in hundredths of a second.
    fn ticks(stat: &str) -> Option<u64> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        Some(number(11)? + number(12)?)
    }

    /// Writes a recording, by the example of corprof-nettrace.
    fn generate(file: &Path, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(env!("CARGO"));
        command.args(["run", "--release", "-q", "-p", "corprof-nettrace", "--example", "generate", "--"]);
        let status = command.arg(file).args(arguments).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "no recording was written: {status}");
        Ok(())
    }

    #[test]
    #[ignore = "writes a file of 1 GB: see the head of this file"]
    fn a_table_of_a_gigabyte() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("large.nettrace");
        generate(&file, &["1000"])?;
        let megabytes = fs::metadata(&file)?.len() as f64 / 1e6;
        // The second time, the system has the file in memory.
        run(folder.path(), &["view", "large.nettrace"])?;
        let taken = run(folder.path(), &["view", "large.nettrace"])?;
        let (wall, processor) = (taken.wall.as_secs_f64(), taken.processor as f64 / 1e3);
        println!(
            "view of {megabytes:.0} MB: {:.0} MB/s by the clock, {:.0} MB a second of processor time",
            megabytes / wall,
            megabytes / processor
        );
        ensure!(taken.memory <= 300 << 10, "{} KB of memory", taken.memory);
        Ok(())
    }

    #[test]
    #[ignore = "writes files of 2 GB: see the head of this file"]
    fn a_heat_map_of_a_day() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("heatmap.html");
        for (hertz, cell) in [("50", "0.02"), ("100", "1.0")] {
            generate(&folder.path().join("day.nettrace"), &["100000", "1", hertz, "24", "skewed"])?;
            run(folder.path(), &["heatmap", "day.nettrace"])?;
            let size = fs::metadata(&page)?.len();
            let text = fs::read_to_string(&page)?;
            let (_, heat) = text.split_once("\"heat\":{\"cell\":").context("no heat map")?;
            let (cells, _) = heat.split_once(',').context("no length of cells")?;
            println!("a day of {hertz} samples a second: a page of {:.1} MB, cells of {cells} s", size as f64 / 1e6);
            ensure!(size <= 15_000_000, "{hertz} Hz: {size} bytes");
            ensure!(cells == cell, "{hertz} Hz: cells of {cells} s");
        }
        Ok(())
    }
}
