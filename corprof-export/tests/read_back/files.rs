//! Paths: which format they ask for, and that a good file is never replaced by half of one.

use std::fs;

use corprof_export::{Error, Format, Output, Profile, Unit};

use crate::shapes;

#[test]
fn extensions_choose_formats() {
    for (name, format) in [
        ("a.html", Format::Html),
        ("a.svg", Format::FlameGraph),
        ("a.FOLDED", Format::Folded),
        ("a.b.txt", Format::Folded),
        ("a.speedscope.json", Format::Speedscope),
        ("a.speedscope.json.gz", Format::SpeedscopeGz),
        ("a.pb.gz", Format::Pprof),
        ("a.pprof", Format::Pprof),
        ("dir.svg/a.json", Format::Firefox),
        ("a.firefox.json", Format::Firefox),
        ("a.json.gz", Format::FirefoxGz),
    ] {
        assert_eq!(Format::of_path(name).unwrap(), format, "{name}");
    }
}

#[test]
fn an_unknown_extension_lists_the_known_ones() {
    for name in ["a.htm", "svg", "", "..", "dir.svg/"] {
        let Err(error) = Format::of_path(name) else {
            assert_eq!(name, "dir.svg/", "{name}");
            continue;
        };
        let message = error.to_string();
        assert!([".svg", ".folded", ".pb.gz", ".txt"].iter().all(|known| message.contains(known)), "{message}");
    }
    let error = Format::of_path("a.trace.json").unwrap_err();
    assert!(matches!(error, Error::TraceOfSamples { .. }) && error.to_string().contains("`Trace`"), "{error}");
}

#[test]
fn one_profile_is_written_in_all_formats() {
    let dir = tempfile::tempdir().unwrap();
    let profile = shapes::shop(Unit::Samples);
    for (extension, format) in [
        ("html", Format::Html),
        ("svg", Format::FlameGraph),
        ("folded", Format::Folded),
        ("speedscope.json", Format::Speedscope),
        ("pb.gz", Format::Pprof),
        ("json", Format::Firefox),
    ] {
        let path = dir.path().join(format!("out.{extension}"));
        fs::write(&path, "older").unwrap();
        assert_eq!(profile.write(&path).unwrap(), format);
        assert_eq!(fs::read(&path).unwrap(), shapes::bytes(&profile, format));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6, "nothing else is left in the folder");
    let json = shapes::bytes(&profile, Format::Firefox);
    assert_eq!(shapes::unzipped(&shapes::bytes(&profile, Format::FirefoxGz)), json);
}

#[test]
fn a_missing_folder_is_named() {
    let error = Profile::new("x", Unit::Samples).write("/nowhere/at/all.svg").unwrap_err();
    assert!(matches!(error, Error::Create { .. }));
    assert!(error.to_string().contains("/nowhere/at/all.svg"), "{error}");
}

#[test]
fn what_cannot_be_replaced_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.svg");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("kept"), "kept").unwrap();
    let error = shapes::shop(Unit::Samples).write(&path).unwrap_err();
    assert!(matches!(error, Error::Write { .. }) && error.to_string().contains("out.svg"), "{error}");
    assert_eq!(fs::read_to_string(path.join("kept")).unwrap(), "kept");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the temporary file is gone");
}

#[cfg(unix)]
#[test]
fn others_may_read_the_file_as_the_umask_says() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let ours = dir.path().join("a.folded");
    let plain = dir.path().join("plain");
    fs::write(&plain, "").unwrap();
    shapes::shop(Unit::Samples).write(&ours).unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&ours), mode(&plain));
}

#[test]
fn snapshots_replace_each_other_and_nobody_elses_file() {
    let dir = tempfile::tempdir().unwrap();
    let process = std::process::id();
    let read = |name: String| fs::read_to_string(dir.path().join(name)).unwrap();
    fs::write(dir.path().join(format!("shop-{process}.folded")), "of an earlier run").unwrap();
    fs::write(dir.path().join(format!("shop-{process}.1.folded")), "of one before that").unwrap();
    let mut output = Output::new(dir.path().join("shop-%p.folded")).unwrap();
    assert_eq!(output.path(), dir.path().join(format!("shop-{process}.folded")));

    let first = output.write(&shapes::shop(Unit::Samples)).unwrap();
    assert_eq!(first.kept, Some(dir.path().join(format!("shop-{process}.2.folded"))));
    let second = output.write(&shapes::deep()).unwrap();
    assert_eq!((second.kept, second.format), (None, Format::Folded));
    assert!(read(format!("shop-{process}.folded")).contains("Recurse1()"));
    assert_eq!(read(format!("shop-{process}.1.folded")), "of one before that");
    assert_eq!(read(format!("shop-{process}.2.folded")), "of an earlier run");

    // Another process writes to the same name in between.
    fs::write(output.path(), "of another process").unwrap();
    let third = output.write(&shapes::shop(Unit::Samples)).unwrap();
    assert_eq!(third.kept, Some(dir.path().join(format!("shop-{process}.3.folded"))));
    assert_eq!(read(format!("shop-{process}.3.folded")), "of another process");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
}

#[test]
fn an_output_that_cannot_be_written_is_refused_at_once() {
    let error = Output::new("/nowhere/at/all.svg").unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all.svg"), "{error}");
    let error = Output::new("/nowhere/at/all.xyz").unwrap_err();
    assert!(matches!(error, Error::UnknownExtension { .. }), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Output::new(file.path().join("all.svg")).unwrap_err();
    assert!(matches!(error, Error::Create { .. }), "{error}");
}
