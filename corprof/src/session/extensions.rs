//! The [observers](Observer) of a session. An extension is one that is made when it is first asked for: the state that
//! a feature keeps in the session, which knows no feature.

use std::any::Any;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Info, Interests, Observer};

/// The observers of a session, in a list that only grows: a look-up takes no lock, and compares a few types.
#[derive(Default)]
pub(super) struct Extensions {
    first: Link,
    /// What any of them observes. Bits are set before the observer is in the list: who finds it there finds them.
    interests: AtomicU32,
}

/// The next observer, once there is one.
type Link = OnceLock<Box<Node>>;

struct Node {
    observer: Box<dyn Observer>,
    interests: Interests,
    next: Link,
}

impl Extensions {
    /// The extension of this type, which the first call makes.
    fn get<E: Observer + Default>(&self) -> &E {
        let mut link = &self.first;
        loop {
            // No earlier observer is of this type. Another thread may be faster here, with one of any type.
            let node = link.get_or_init(|| self.node(Box::<E>::default()));
            match node.downcast_ref() {
                Some(extension) => return extension,
                None => link = &node.next,
            }
        }
    }

    fn find<E: Observer>(&self) -> Option<&E> {
        self.nodes().find_map(Node::downcast_ref)
    }

    fn register(&self, observer: Box<dyn Observer>) {
        let mut node = self.node(observer);
        let mut link = &self.first;
        while let Err(refused) = link.set(node) {
            let Some(taken) = link.get() else { return };
            node = refused;
            link = &taken.next;
        }
    }

    fn node(&self, observer: Box<dyn Observer>) -> Box<Node> {
        let interests = observer.interests();
        self.interests.fetch_or(interests.bits(), Ordering::Release);
        Box::new(Node { observer, interests, next: Link::new() })
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.first.get(), |node| node.next.get()).map(Box::as_ref)
    }

    #[inline]
    fn are_interested_in(&self, group: Interests) -> bool {
        Interests::from_bits_retain(self.interests.load(Ordering::Acquire)).contains(group)
    }

    #[inline]
    fn observers(&self, group: Interests) -> impl Iterator<Item = &dyn Observer> {
        let first = if self.are_interested_in(group) { self.first.get() } else { None };
        let nodes = std::iter::successors(first, |node| node.next.get());
        nodes.filter(move |node| node.interests.contains(group)).map(|node| node.observer.as_ref())
    }
}

impl Node {
    fn downcast_ref<E: Observer>(&self) -> Option<&E> {
        let observer: &dyn Any = self.observer.as_ref();
        observer.downcast_ref()
    }
}

impl Info {
    /// The state that a feature keeps in this session, which the first call makes.
    pub(crate) fn extension<E: Observer + Default>(&self) -> &E {
        self.0.extensions.get()
    }

    /// The observer of this type, if one is registered.
    pub(crate) fn find_observer<E: Observer>(&self) -> Option<&E> {
        self.0.extensions.find()
    }

    /// Registers an observer, for as long as the session lives.
    pub(crate) fn register_observer(&self, observer: impl Observer) {
        self.0.extensions.register(Box::new(observer));
    }

    /// Whether anybody observes a group of callbacks.
    #[inline]
    pub(crate) fn is_observed(&self, group: Interests) -> bool {
        self.0.extensions.are_interested_in(group)
    }

    /// Those who observe a group of callbacks, in the order in which they were registered.
    #[inline]
    pub(crate) fn observers(&self, group: Interests) -> impl Iterator<Item = &dyn Observer> {
        self.0.extensions.observers(group)
    }

    /// All observers, in the order in which they were registered.
    pub(crate) fn all_observers(&self) -> impl Iterator<Item = &dyn Observer> {
        self.0.extensions.observers(Interests::empty())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[derive(Default)]
    struct Gone(AtomicUsize);

    impl Observer for Gone {
        fn interests(&self) -> Interests {
            Interests::MODULES
        }

        fn module_gone(&self, module: usize) {
            self.0.fetch_add(module, SeqCst);
        }
    }

    #[derive(Default)]
    struct Other(AtomicUsize);

    impl Observer for Other {
        fn module_gone(&self, _module: usize) {
            panic!("it does not observe modules");
        }
    }

    #[test]
    fn there_is_one_extension_of_each_type_and_each_hears_of_what_it_observes() {
        let extensions = Extensions::default();
        assert_eq!(extensions.nodes().count(), 0, "none is made before it is asked for");
        assert!(extensions.find::<Other>().is_none());
        extensions.get::<Other>().0.store(5, SeqCst);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    extensions.get::<Gone>().0.fetch_add(1, SeqCst);
                    extensions.get::<Other>().0.fetch_add(1, SeqCst);
                });
            }
        });
        extensions.observers(Interests::MODULES).for_each(|observer| observer.module_gone(8));
        assert_eq!(extensions.find::<Gone>().unwrap().0.load(SeqCst), 4 + 8);
        assert_eq!(extensions.get::<Other>().0.load(SeqCst), 5 + 4);
        assert_eq!(extensions.nodes().count(), 2);
        assert_eq!(extensions.observers(Interests::empty()).count(), 2);
        assert_eq!(extensions.observers(Interests::EVENTS).count(), 0);
    }

    /// Writes its name down when a thread begins.
    struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Observer for Named {
        fn interests(&self) -> Interests {
            Interests::THREADS | Interests::EVENTS
        }

        fn thread_began(&self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn observers_are_called_in_the_order_of_their_registration() {
        let extensions = Extensions::default();
        let called = Arc::default();
        assert!(!extensions.are_interested_in(Interests::THREADS));
        extensions.register(Box::new(Named("first", Arc::clone(&called))));
        extensions.get::<Gone>();
        extensions.register(Box::new(Named("second", Arc::clone(&called))));
        assert!(extensions.are_interested_in(Interests::THREADS) && extensions.are_interested_in(Interests::MODULES));
        assert!(!extensions.are_interested_in(Interests::REJITS));
        extensions.observers(Interests::THREADS).for_each(|observer| observer.thread_began());
        assert_eq!(*called.lock().unwrap(), ["first", "second"]);
    }
}
