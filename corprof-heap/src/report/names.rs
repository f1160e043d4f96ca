//! The names of a report, where they are not those of the snapshot.

use std::collections::HashMap;

use crate::{Class, HeapGraph, ObjectId, Root};

/// How a report names classes and static fields. [`Names::of`] makes it; the default are the names of the snapshot.
///
/// ```
/// use corprof_heap::report::Names;
/// use corprof_heap::{GraphBuilder, RootKind};
///
/// let mut builder = GraphBuilder::new("shop");
/// builder.class(7, "Shop.<>c__DisplayClass3_0", "Shop", 24);
/// builder.class_method(7, "<Load>b__0");
/// builder.object(0x1000, 7, 24);
/// builder.root(0x1000, RootKind::Stack, None);
/// let graph = builder.finish()?;
/// let names = Names::of(graph.classes(), |class| format!("closure of {}", class.method), str::to_owned);
/// assert_eq!(names.class(&graph.classes()[0]), "closure of <Load>b__0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The names that differ from those of the snapshot, by assembly and name there.
    classes: HashMap<(String, String), String>,
    field: Option<fn(&str) -> String>,
}

impl Names {
    /// Gives each class the name that `spelled` makes, and each static field that of `field`, which takes the name of
    /// its class and its own.
    ///
    /// Classes of one assembly keep different names: where `spelled` makes one name of several, the end of the name in
    /// the snapshot stands behind it.
    #[must_use]
    pub fn of<'c>(
        classes: impl IntoIterator<Item = &'c Class>,
        spelled: impl Fn(&Class) -> String,
        field: fn(&str) -> String,
    ) -> Self {
        let mut names: HashMap<(String, String), String> = HashMap::new();
        for class in classes {
            let shown = spelled(class);
            names.insert((class.assembly.clone(), class.name.clone()), shown);
        }
        let mut users: HashMap<(&str, &str), usize> = HashMap::new();
        for ((assembly, _), shown) in &names {
            *users.entry((assembly, shown)).or_default() += 1;
        }
        let is_shared = |assembly: &str, shown: &str| users.get(&(assembly, shown)).is_some_and(|users| *users > 1);
        let mut classes = HashMap::new();
        for (key, shown) in &names {
            let (assembly, name) = key;
            if shown == name {
                continue;
            }
            let shown =
                if is_shared(assembly, shown) { format!("{shown}: {}", last_part(name)) } else { shown.clone() };
            classes.insert(key.clone(), shown);
        }
        Self { classes, field: Some(field) }
    }

    /// The name that is shown of a class.
    #[must_use]
    pub fn class<'n>(&'n self, class: &'n Class) -> &'n str {
        self.named(&class.assembly, &class.name)
    }

    /// The same by assembly and name in the snapshot.
    #[must_use]
    pub fn named<'n>(&'n self, assembly: &str, name: &'n str) -> &'n str {
        if self.classes.is_empty() {
            return name;
        }
        self.classes.get(&(assembly.to_owned(), name.to_owned())).map_or(name, String::as_str)
    }

    /// The name that is shown of the class of an object.
    #[must_use]
    pub fn of_object<'n>(&'n self, graph: &'n HeapGraph, object: ObjectId) -> &'n str {
        self.class(graph.class(graph.class_of(object)))
    }

    /// A root in words: `static field Shop.Catalogue.items`.
    #[must_use]
    pub fn root(&self, root: &Root) -> String {
        match (&root.name, self.field) {
            (Some(name), Some(field)) => format!("{} {}", root.kind.name(), field(name)),
            _ => root.to_string(),
        }
    }
}

/// The part of a name behind the last dot that is in no brackets.
fn last_part(name: &str) -> &str {
    let mut depth = 0_usize;
    let mut start = 0;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '.' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    name.get(start..).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(assembly: &str, name: &str) -> Class {
        let (assembly, name) = (assembly.to_owned(), name.to_owned());
        Class { assembly, name, key: 0, instance_size: 0, method: String::new() }
    }

    #[test]
    fn classes_that_would_have_one_name_stay_apart() {
        let classes = [
            class("A", "S.<L>d__1"),
            class("A", "S.<L>d__2"),
            class("B", "S.<L>d__1"),
            class("A", "Box<S.<M>d__3>"),
            class("A", "Plain"),
        ];
        let spelled =
            |class: &Class| if class.name.contains("<L>") { "S.L (async)".to_owned() } else { class.name.clone() };
        let names = Names::of(&classes, spelled, |field| field.to_uppercase());
        let shown: Vec<&str> = classes.iter().map(|class| names.class(class)).collect();
        assert_eq!(shown, ["S.L (async): <L>d__1", "S.L (async): <L>d__2", "S.L (async)", "Box<S.<M>d__3>", "Plain"]);
        assert_eq!(last_part("N.Builder<A.B>.Box<S.<M>d__3>"), "Box<S.<M>d__3>");
        assert_eq!(Names::default().class(&classes[0]), "S.<L>d__1");
    }
}
