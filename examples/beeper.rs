//! Beeps at every class load, each time at another pitch: what a program loads, to listen to.
//!
//! `cargo xtask demo beeper`; with BEEPER_WAV=loads.wav the beeps go into that file as well.

use corprof::{prelude::*, settings::Setting, sync::Mutex};
use hound::{SampleFormat, WavSpec, WavWriter};
use std::{f32::consts::TAU, fs::File, io::BufWriter};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A01")]
struct Beeper(Mutex<Option<WavWriter<BufWriter<File>>>>);

#[callbacks]
impl Callbacks for Beeper {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let spec = WavSpec { channels: 1, sample_rate: 8000, bits_per_sample: 16, sample_format: SampleFormat::Int };
        let create = |path| WavWriter::create(path, spec).context("making the file of BEEPER_WAV");
        *self.0.lock(cx) = Setting::of("BEEPER_WAV").output()?.map(create).transpose()?;
        Ok(())
    }
    fn class_load_finished(&self, cx: &mut InTriggers<'_>, _class: ClassId, _status: Result<()>) {
        let pitch = fastrand::u32(200..2000);
        #[cfg(not(windows))]
        eprint!("\x07");
        // SAFETY: Beep takes two numbers.
        #[cfg(windows)]
        unsafe {
            windows_sys::Win32::System::Diagnostics::Debug::Beep(pitch, 20)
        };
        let wave = (0..160).map(|n| (9000.0 * (n as f32 * TAU * pitch as f32 / 8000.0).sin()) as i16);
        self.0.lock(cx).iter_mut().for_each(|wav| wave.clone().for_each(|sample| drop(wav.write_sample(sample))));
    }
}
