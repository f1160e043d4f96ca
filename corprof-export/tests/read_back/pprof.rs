//! pprof files, unzipped and read by rust-protobuf from a schema of ours.

use std::path::Path;
use std::time::Duration;

use corprof_export::{Format, Profile, Unit};
use protobuf::MessageDyn;
use protobuf::reflect::{FileDescriptor, ReflectValueRef};

use crate::shapes;

struct File(Box<dyn MessageDyn>);

/// A message's fields by name.
struct Fields<'a>(&'a dyn MessageDyn);

impl<'a> Fields<'a> {
    fn number(&self, name: &str) -> u64 {
        let field = self.0.descriptor_dyn().field_by_name(name).unwrap();
        as_number(field.get_singular_field_or_default(self.0))
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        let field = self.0.descriptor_dyn().field_by_name(name).unwrap();
        field.get_repeated(self.0).into_iter().map(as_number).collect()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let field = self.0.descriptor_dyn().field_by_name(name).unwrap();
        field.get_repeated(self.0).into_iter().map(|text| text.to_str().unwrap().to_owned()).collect()
    }

    /// Calls `each` with the messages of a repeated field.
    fn each(&self, name: &str, mut each: impl FnMut(Fields<'_>)) {
        let field = self.0.descriptor_dyn().field_by_name(name).unwrap();
        for value in field.get_repeated(self.0) {
            let ReflectValueRef::Message(message) = value else { panic!("{name} holds no messages") };
            each(Fields(&*message));
        }
    }

    fn rows(&self, name: &str, columns: &[&str]) -> Vec<Vec<u64>> {
        let mut rows = Vec::new();
        self.each(name, |message| rows.push(columns.iter().map(|column| message.number(column)).collect()));
        rows
    }
}

fn as_number(value: ReflectValueRef<'_>) -> u64 {
    match value {
        ReflectValueRef::U64(number) => number,
        ReflectValueRef::I64(number) => u64::try_from(number).unwrap(),
        ReflectValueRef::Bool(is_set) => u64::from(is_set),
        other => panic!("{other:?} is not a number"),
    }
}

fn read(profile: &Profile) -> File {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_back"));
    let mut parser = protobuf_parse::Parser::new();
    let descriptors = parser.pure().include(folder).input(folder.join("profile.proto")).file_descriptor_set().unwrap();
    let file = FileDescriptor::new_dynamic(descriptors.file[0].clone(), &[]).unwrap();
    let content = shapes::unzipped(&shapes::bytes(profile, Format::Pprof));
    let message = file.message_by_package_relative_name("Profile").unwrap().parse_from_bytes(&content).unwrap();
    assert!(unknown(&*message) == 0, "fields that the schema does not have");
    File(message)
}

fn unknown(message: &dyn MessageDyn) -> usize {
    message.special_fields_dyn().unknown_fields().iter().count()
}

/// Each sample with its stack, leaf first, its values, and the thread it names.
fn samples(file: &File) -> Vec<(Vec<String>, Vec<u64>, String)> {
    let file = Fields(&*file.0);
    let texts = file.texts("string_table");
    assert_eq!(texts[0], "");
    let functions = file.rows("function", &["id", "name", "filename"]);
    let mut locations = Vec::new();
    file.each("location", |location| {
        locations.push((location.number("id"), location.rows("line", &["function_id", "line"])));
    });
    let name = |id: u64| {
        let (_, lines) = locations.iter().find(|(location, _)| *location == id).unwrap();
        let function = functions.iter().find(|function| function[0] == lines[0][0]).unwrap();
        texts[function[1] as usize].clone()
    };
    let mut samples = Vec::new();
    file.each("sample", |sample| {
        let stack = sample.numbers("location_id").into_iter().map(name).collect();
        let label = sample.rows("label", &["key", "str", "num"])[0].clone();
        assert_eq!(texts[label[0] as usize], "thread");
        samples.push((stack, sample.numbers("value"), texts[label[1] as usize].clone()));
    });
    samples
}

fn types(file: &File) -> Vec<(String, String)> {
    let file = Fields(&*file.0);
    let texts = file.texts("string_table");
    let rows = file.rows("sample_type", &["type", "unit"]);
    rows.iter().map(|row| (texts[row[0] as usize].clone(), texts[row[1] as usize].clone())).collect()
}

#[test]
fn stacks_weights_threads_and_modules_are_there() {
    let file = read(&shapes::shop(Unit::Nanoseconds));
    let work = "Shop.Work<T>(int32, \"x\")";
    let sample = |stack: &[&str], values: [u64; 2], thread: &str| {
        (stack.iter().map(|name| (*name).to_owned()).collect(), values.to_vec(), thread.to_owned())
    };
    let expected = [
        sample(&["Shop.Main()"], [1, 1], "main"),
        sample(&[work, "Shop.Main()"], [1, 3], "main"),
        sample(&["read", work, "Shop.Main()"], [1, 2], "main"),
        sample(&[work, "Shop.Main()"], [1, 4], "thread 4712"),
    ];
    assert_eq!(samples(&file), expected);
    assert_eq!(types(&file)[1], ("time".into(), "nanoseconds".into()));
    let fields = Fields(&*file.0);
    let texts = fields.texts("string_table");
    let modules: Vec<_> =
        fields.rows("mapping", &["filename"]).iter().map(|row| texts[row[0] as usize].clone()).collect();
    assert_eq!(modules, ["shop", "Shop.dll", "libc.so.6"]);
    assert_eq!(fields.rows("location", &["mapping_id"]), [[2], [2], [3]]);
    // See src/pprof/proto.rs: with a name in the system, `pprof` would cut the signatures off.
    assert_eq!(fields.rows("function", &["system_name"]), [[0], [0], [0]]);
    assert_eq!(fields.number("time_nanos"), 1_700_000_000_000_000_000);
    assert_eq!(fields.number("duration_nanos"), 30_000_000);
}

#[test]
fn samples_of_a_known_interval_have_a_time_as_well() {
    let file = read(&shapes::shop(Unit::Samples).with_interval(Duration::from_millis(10)));
    assert_eq!(samples(&file)[1].1, [3, 30_000_000]);
    assert_eq!(Fields(&*file.0).number("period"), 10_000_000);
    let plain = read(&shapes::shop(Unit::Samples));
    assert_eq!(types(&plain), [("samples".to_owned(), "count".to_owned())]);
    assert_eq!(samples(&plain)[1].1, [3]);
}

#[test]
fn the_run_is_told_as_it_was() {
    let file = read(&shapes::told());
    assert_eq!(types(&file), [("samples".into(), "count".into()), ("cpu".into(), "nanoseconds".into())]);
    let fields = Fields(&*file.0);
    assert_eq!((fields.number("period"), fields.number("duration_nanos")), (10_000_000, 5_230_000_000));
    let texts = fields.texts("string_table");
    let comments: Vec<_> = fields.numbers("comment").into_iter().map(|number| texts[number as usize].clone()).collect();
    assert_eq!(comments[0], "shop");
    for expected in shapes::TOLD {
        assert!(comments.iter().any(|comment| comment.contains(expected)), "{expected}: {comments:?}");
    }
}

#[test]
fn sums_count_their_samples() {
    let mut profile = shapes::fill(Profile::summed("shop", Unit::Bytes));
    profile = shapes::fill(profile);
    // The second filling made threads of its own, and the same stacks.
    assert_eq!(samples(&read(&profile)).len(), 8);
    let mut profile = Profile::summed("one", Unit::Bytes);
    let frame = profile.frame(corprof_export::Frame::managed("New()"));
    let stack = profile.stack_root_first([frame]);
    let thread = profile.thread(1, "main");
    (0..1_000_000).for_each(|_| profile.sample(thread, Duration::ZERO, stack, 24));
    assert_eq!(samples(&read(&profile)), [(vec!["New()".to_owned()], vec![1_000_000, 24_000_000], "main".to_owned())]);
}

#[test]
fn empty_odd_and_deep_profiles_are_read() {
    assert_eq!(samples(&read(&Profile::new("none", Unit::Samples))).len(), 0);
    assert_eq!(samples(&read(&shapes::odd())).len(), 31);
    assert_eq!(samples(&read(&shapes::deep()))[9].0.len(), 10_000);
}
