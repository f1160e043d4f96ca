//! Follows chains of objects by any fields of any classes, while collections run and assemblies come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::InSlowHook;
use corprof::hooks::{HookValues, Precompiled};
use corprof::prelude::*;
use corprof::values::{Arguments, ChainEnd, LinkCache, Links, Value};

/// How many objects of a chain are visited.
const MOST: usize = 100;

struct Shared {
    links: Links<u32>,
    followed: AtomicU64,
    visited: AtomicU64,
    refused: AtomicU64,
    learned: AtomicU64,
    not_learned: AtomicU64,
}

/// Hooks of all methods.
struct Follows(Arc<Shared>);

impl FunctionHooks for Follows {
    type Function = ();
    type Thread = LinkCache<u32>;

    const VALUES: HookValues = HookValues::ARGUMENTS;
    const KINDS: HookKinds = HookKinds::ENTER;

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Inlinable(())
    }

    fn thread_started(&self) -> LinkCache<u32> {
        self.0.links.cache()
    }

    fn enter_with_args(&self, cx: &InSlowHook<'_>, cache: &mut LinkCache<u32>, (): &(), args: &Arguments<'_>) {
        for value in args.this().into_iter().chain(args.iter()) {
            let Value::Object(Some(object)) = value else { continue };
            let end = self.0.links.follow(cx, cache, object, MOST, |_class| {
                self.0.visited.fetch_add(1, Relaxed);
            });
            let is_end = matches!(end, Ok(ChainEnd::Null | ChainEnd::Last | ChainEnd::Unknown | ChainEnd::Limit));
            let count = if is_end { &self.0.followed } else { &self.0.refused };
            count.fetch_add(1, Relaxed);
        }
    }
}

/// The names of all fields of a class and its base classes.
pub(super) fn fields(cx: &InNoGc<'_>, class: ClassId) -> Vec<String> {
    let mut names = Vec::new();
    let mut class = Some(class);
    while let Some(info) = class.and_then(|class| cx.class_info(class).ok()) {
        class = info.parent;
        let Ok(metadata) = cx.metadata(info.module) else { continue };
        let fields = metadata.fields(info.token).unwrap_or_default();
        names.extend(fields.into_iter().filter_map(|field| Some(metadata.field(field).ok()?.name)));
    }
    names
}

impl Shared {
    /// Learns another field of each class each time.
    fn learn(&self, cx: &mut ProfilerThread<'_>, number: &mut u32) {
        for class in self.links.take_unknown(cx) {
            *number = number.wrapping_add(1);
            let mut names = fields(cx, class);
            let shift = *number as usize % names.len().max(1);
            names.rotate_left(shift);
            let nonsense = [&["", ""][..], &["_next", "a"], &["x\0"]];
            let mut is_learned = nonsense.iter().any(|path| self.links.learn(cx, class, *number, path).is_ok());
            is_learned |= names.iter().any(|name| self.links.learn(cx, class, *number, &[name, name]).is_ok());
            is_learned |= names.iter().any(|name| self.links.learn(cx, class, *number, &[name]).is_ok());
            let count = if is_learned { &self.learned } else { &self.not_learned };
            count.fetch_add(1, Relaxed);
            if !is_learned {
                let _ = self.links.learn(cx, class, *number, &[]);
            }
        }
    }
}

/// With FOLLOWS_BY=runtime the runtime calls the hooks, otherwise inserted code.
#[derive(Profiler)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C90C", no_export)]
pub(crate) struct FollowsLinks(Arc<Shared>);

#[callbacks]
impl Callbacks for FollowsLinks {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let shared = Arc::new(Shared {
            links: Links::new(cx)?,
            followed: AtomicU64::new(0),
            visited: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            learned: AtomicU64::new(0),
            not_learned: AtomicU64::new(0),
        });
        let hooks = cx.hooks(Follows(Arc::clone(&shared)));
        if std::env::var("FOLLOWS_BY").is_ok_and(|by| by == "runtime") {
            hooks.install()?;
        } else {
            hooks.inserted(Precompiled::Compile).install()?;
        }
        let learner = Arc::clone(&shared);
        cx.spawn_profiler_thread("learns", move |cx| {
            let mut number = 0;
            while !cx.is_stopping() {
                learner.learn(cx, &mut number);
                std::thread::sleep(Duration::from_millis(1));
            }
        })?;
        Ok(Self(shared))
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let shared = &self.0;
        let counts = [&shared.followed, &shared.visited, &shared.refused, &shared.learned, &shared.not_learned];
        let [followed, visited, refused, learned, not_learned] = counts.map(|count| count.load(Relaxed));
        eprintln!(
            "attacks| followed={followed} visited={visited} refused={refused} learned={learned} \
             not_learned={not_learned}"
        );
    }
}
