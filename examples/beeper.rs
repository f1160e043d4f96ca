//! Beeps at every class load, at a random pitch.
//!
//! Run it with `cargo xtask demo beeper`. BEEPER_WAV=loads.wav also writes the beeps to that file.

use std::f32::consts::TAU;
use std::fs::File;
use std::io::BufWriter;

use corprof::prelude::*;
use corprof::settings::Setting;
use corprof::sync::Mutex;
use hound::{SampleFormat, WavSpec, WavWriter};

const SAMPLE_RATE: u32 = 8000;

/// The length of a beep in samples: 20 ms.
const LENGTH: u32 = SAMPLE_RATE / 50;

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A01")]
struct Beeper {
    wav: Option<Mutex<WavWriter<BufWriter<File>>>>,
}

#[callbacks]
impl Callbacks for Beeper {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let Some(path) = Setting::of("BEEPER_WAV").output()? else { return Ok(Self { wav: None }) };
        let spec =
            WavSpec { channels: 1, sample_rate: SAMPLE_RATE, bits_per_sample: 16, sample_format: SampleFormat::Int };
        let wav = WavWriter::create(path, spec).context("creating the file of BEEPER_WAV")?;
        Ok(Self { wav: Some(Mutex::new(wav)) })
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        let pitch = fastrand::u32(200..2000);
        beep(pitch);
        if let Some(wav) = &self.wav {
            let mut wav = wav.lock(cx);
            for n in 0..LENGTH {
                let angle = TAU * (pitch * n) as f32 / SAMPLE_RATE as f32;
                // If the disk is full, the file is cut; the application runs on.
                let _ = wav.write_sample((9000.0 * angle.sin()) as i16);
            }
        }
    }
}

#[cfg(not(windows))]
fn beep(_pitch: u32) {
    eprint!("\x07");
}

#[cfg(windows)]
fn beep(pitch: u32) {
    // SAFETY: Beep takes two numbers.
    unsafe { windows_sys::Win32::System::Diagnostics::Debug::Beep(pitch, 20) };
}
