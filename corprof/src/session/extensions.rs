//! [`Extension`]: the state that a feature keeps in the session, which knows no feature.

use std::any::Any;
use std::sync::OnceLock;

use super::Info;

/// State of a feature: a session has at most one value of each type, made when it is first asked for
/// ([`Info::extension`]).
///
/// The adapter calls the methods around callbacks, whether the profiler is disabled or not.
pub(crate) trait Extension: Any + Send + Sync {
    /// A module has gone: the next one with this id is another module.
    fn module_gone(&self, _module: usize) {}
}

/// The extensions of a session, in a list that only grows: a look-up takes no lock, and compares a few types.
#[derive(Default)]
pub(super) struct Extensions(Link);

/// The next value, once there is one.
type Link = OnceLock<Box<Node>>;

struct Node {
    value: Box<dyn Extension>,
    next: Link,
}

impl Extensions {
    fn get<E: Extension + Default>(&self) -> &E {
        let mut link = &self.0;
        loop {
            // No earlier value is of this type. Another thread may be faster here, with a value of any type.
            let node = link.get_or_init(|| Box::new(Node { value: Box::<E>::default(), next: Link::new() }));
            let value: &dyn Any = node.value.as_ref();
            match value.downcast_ref() {
                Some(extension) => return extension,
                None => link = &node.next,
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &dyn Extension> {
        let nodes = std::iter::successors(self.0.get(), |node| node.next.get());
        nodes.map(|node| node.value.as_ref())
    }
}

impl Info {
    /// The state that a feature keeps in this session.
    pub(crate) fn extension<E: Extension + Default>(&self) -> &E {
        self.0.extensions.get()
    }

    /// Calls every extension that there is.
    pub(crate) fn for_each_extension(&self, call: impl FnMut(&dyn Extension)) {
        self.0.extensions.iter().for_each(call);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[derive(Default)]
    struct Gone(AtomicUsize);

    impl Extension for Gone {
        fn module_gone(&self, module: usize) {
            self.0.fetch_add(module, SeqCst);
        }
    }

    #[derive(Default)]
    struct Other(AtomicUsize);

    impl Extension for Other {}

    #[test]
    fn there_is_one_value_of_each_type_and_each_hears_of_events() {
        let extensions = Extensions::default();
        assert_eq!(extensions.iter().count(), 0, "none is made before it is asked for");
        extensions.get::<Other>().0.store(5, SeqCst);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    extensions.get::<Gone>().0.fetch_add(1, SeqCst);
                    extensions.get::<Other>().0.fetch_add(1, SeqCst);
                });
            }
        });
        extensions.iter().for_each(|extension| extension.module_gone(8));
        assert_eq!(extensions.get::<Gone>().0.load(SeqCst), 4 + 8);
        assert_eq!(extensions.get::<Other>().0.load(SeqCst), 5 + 4);
        assert_eq!(extensions.iter().count(), 2);
    }
}
