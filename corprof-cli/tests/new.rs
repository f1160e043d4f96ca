//! The crate that `corprof new` makes builds, passes its test, and holds a profiler that the other commands find.

use std::path::{Path, PathBuf};
use std::process::Command;

/// It compiles corprof twice.
mod long {
    use super::*;

    #[test]
    fn a_new_crate_builds_and_its_test_passes() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let new = |name: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
            command.current_dir(&folder).args(["new", name, "--corprof-path"]).arg(workspace.join("corprof"));
            command.output().unwrap()
        };
        let made = new("my-profiler");
        assert!(made.status.success(), "{made:?}");
        assert_eq!(new("my-profiler").status.code(), Some(3), "it exists already");
        assert_eq!(new("My Profiler").status.code(), Some(2), "no such name");

        let crate_folder = folder.path().join("my-profiler");
        // The versions that the workspace has been built with, so that nothing is fetched.
        std::fs::copy(workspace.join("Cargo.lock"), crate_folder.join("Cargo.lock")).unwrap();
        let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("new");
        let cargo = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO"));
            command.current_dir(&crate_folder).args(args).arg("--offline").env("CARGO_TARGET_DIR", &target);
            // Those of the build of this test are about this test.
            command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
            let output = command.output().unwrap();
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert!(cargo(&["test"]).contains("test tests::exceptions_are_counted ... ok"));
        let mut format = Command::new("rustfmt");
        format.args(["--check", "--edition", "2024", "src/lib.rs"]).current_dir(&crate_folder);
        // An installation of Rust need not have it.
        if let Ok(output) = format.output() {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        cargo(&["build"]);

        let file = format!("{}my_profiler{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        let profilers = corprof_launch::profiler::profilers(&target.join("debug").join(file)).unwrap();
        assert_eq!(profilers.len(), 1);
        assert_eq!(profilers[0].name, "MyProfiler");
        let source = std::fs::read_to_string(crate_folder.join("src/lib.rs")).unwrap();
        assert!(source.contains(profilers[0].clsid.trim_matches(['{', '}'])), "another CLSID than in the source");
    }
}
