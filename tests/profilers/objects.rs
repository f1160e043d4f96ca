//! Reads the exceptions that are thrown, and everything behind them: for `live/objects.rs`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use corprof::prelude::*;
use corprof::values::Value;

/// How far references are followed.
const MOST_DEPTH: usize = 4;

/// Shows the first exception, reads all.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1311")]
struct Objects {
    exceptions: AtomicUsize,
    values: AtomicUsize,
    errors: AtomicUsize,
}

#[callbacks]
impl Callbacks for Objects {
    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        let is_first = self.exceptions.fetch_add(1, Ordering::Relaxed) == 0;
        let mut seen = HashSet::new();
        self.read(cx, "it", thrown, 0, &mut seen, is_first);
        if is_first {
            chain(cx, thrown);
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [exceptions, values, errors] =
            [&self.exceptions, &self.values, &self.errors].map(|count| count.load(Ordering::Relaxed));
        eprintln!("objects| {exceptions} exceptions, {values} values, {errors} errors");
    }
}

impl Objects {
    fn read(
        &self,
        cx: &InNoGc<'_>,
        path: &str,
        object: ObjectId<'_>,
        depth: usize,
        seen: &mut HashSet<usize>,
        is_shown: bool,
    ) {
        if depth > MOST_DEPTH || !seen.insert(object.as_raw()) {
            return;
        }
        let value = match cx.value(object) {
            Ok(value) => value,
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                if is_shown {
                    eprintln!("objects| {path}: error {error}");
                }
                return;
            }
        };
        if is_shown {
            eprintln!("objects| {path} = {} of {}", value, cx.names().class_of(object));
        }
        for field in value.fields() {
            self.part(cx, &format!("{path}.{}", field.name()), field.value(), depth, seen, is_shown);
        }
        let length = value.array().map_or(0, |array| array.len());
        for index in 0..length as usize {
            let Some(element) = value.element(index) else { continue };
            self.part(cx, &format!("{path}[{index}]"), element, depth, seen, is_shown);
        }
        if let Some(boxed) = value.boxed() {
            self.part(cx, &format!("{path}.boxed"), boxed, depth, seen, is_shown);
        }
    }

    fn part(
        &self,
        cx: &InNoGc<'_>,
        path: &str,
        value: Value<'_>,
        depth: usize,
        seen: &mut HashSet<usize>,
        is_shown: bool,
    ) {
        self.values.fetch_add(1, Ordering::Relaxed);
        if is_shown {
            eprintln!("objects| {path}: {value}");
        }
        if let Value::Object(Some(object)) = value {
            self.read(cx, path, object, depth + 1, seen, is_shown);
        }
    }
}

/// Follows a chain of references, each beyond the value that it was read from.
fn chain(cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
    let mut next = cx.value(thrown).ok().and_then(|carrier| carrier.reference("Chain"));
    while let Some(link) = next {
        let Ok(value) = cx.value(link) else { return };
        let text = value.field("Text").map(|text| text.to_string());
        eprintln!("objects| chain: {}", text.unwrap_or_default());
        next = value.reference("Next");
    }
}
