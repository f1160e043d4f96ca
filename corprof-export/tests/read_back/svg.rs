//! Flame graphs: well-formed XML, with the right boxes.

use corprof_export::{Format, Profile, Unit};
use quick_xml::events::Event;

use crate::shapes;

/// The title of each box, as a browser shows it; fails on invalid XML.
fn titles(svg: &str) -> Vec<String> {
    let is_xml = |c: char| matches!(c, '\t' | '\n' | '\r') || (c >= ' ' && c != '\u{fffe}' && c != '\u{ffff}');
    assert!(svg.chars().all(is_xml), "a character that XML does not know");
    let mut reader = quick_xml::Reader::from_str(svg);
    let mut titles = Vec::new();
    let mut depth = 0;
    let mut inside = false;
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) => {
                depth += 1;
                inside = tag.name().as_ref() == b"title";
                if inside {
                    titles.push(String::new());
                }
            }
            Event::End(_) => (depth, inside) = (depth - 1, false),
            Event::Text(text) if inside => titles.last_mut().unwrap().push_str(&text.decode().unwrap()),
            Event::GeneralRef(entity) if inside => {
                let entity = entity.decode().unwrap();
                titles.last_mut().unwrap().push_str(quick_xml::escape::resolve_predefined_entity(&entity).unwrap());
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    titles
}

#[test]
fn boxes_have_names_and_inclusive_weights() {
    let titles = titles(&shapes::text(&shapes::shop(Unit::Samples), Format::FlameGraph));
    for expected in [
        "Shop.Main() (10 samples, 100.00%)",
        "Shop.Work<T>(int32, \"x\") (9 samples, 90.00%)",
        "read (2 samples, 20.00%)",
    ] {
        assert!(titles.iter().any(|title| title == expected), "{expected}: {titles:?}");
    }
}

#[test]
fn time_is_shown_as_microseconds() {
    let mut profile = Profile::summed("time", Unit::Nanoseconds);
    let frame = profile.frame(corprof_export::Frame::managed("Slow()"));
    let stack = profile.stack_root_first([frame]);
    let thread = profile.thread(1, "main");
    profile.sample(thread, std::time::Duration::ZERO, stack, 1_234_567_000);
    let titles = titles(&shapes::text(&profile, Format::FlameGraph));
    assert!(titles.contains(&"Slow() (1,234,567 µs, 100.00%)".to_owned()), "{titles:?}");
}

#[test]
fn without_samples_it_says_so() {
    let svg = shapes::text(&Profile::new("none", Unit::Samples), Format::FlameGraph);
    assert!(svg.contains("No samples"));
    titles(&svg);
}

#[test]
fn what_is_deeper_than_a_screen_is_one_frame() {
    let svg = shapes::text(&shapes::deep(), Format::FlameGraph);
    let titles = titles(&svg);
    assert!(titles.contains(&"[deeper] (9 samples, 90.00%)".to_owned()), "no frame for what is deeper");
    assert!(svg.len() < 2_000_000, "{} bytes", svg.len());
}

#[test]
fn odd_names_stay_xml() {
    let svg = shapes::text(&shapes::odd(), Format::FlameGraph);
    let titles = titles(&svg);
    assert!(titles.iter().any(|title| title.starts_with("日本語.メソッド() (2 µs")), "a name is missing");
}
