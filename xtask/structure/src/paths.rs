//! The paths in a source file.

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Meta, Token};

/// The paths in a file, each with the module it is written in. Code for tests and documentation is left out.
pub(super) fn paths_in(file: &syn::File, module: &[String]) -> Vec<(Vec<String>, Vec<String>)> {
    let mut visitor = Paths { module: module.to_owned(), found: Vec::new() };
    visitor.visit_file(file);
    visitor.found
}

struct Paths {
    module: Vec<String>,
    found: Vec<(Vec<String>, Vec<String>)>,
}

impl Paths {
    fn add(&mut self, path: Vec<String>) {
        self.found.push((self.module.clone(), path));
    }

    /// Adds paths whose beginning shows that they belong to this crate.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    if colons == 2 && !path.is_empty() {
                        path.push(name);
                    } else {
                        self.end(&mut path);
                        if ["crate", "super", "self"].contains(&name.as_str()) {
                            path.push(name);
                        }
                    }
                    colons = 0;
                }
                other => {
                    self.end(&mut path);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.add(path);
        }
    }
}

macro_rules! where_counted {
    ($($visit:ident $node:ident,)*) => { $(
        fn $visit(&mut self, node: &'ast syn::$node) {
            if is_counted(&node.attrs) {
                visit::$visit(self, node);
            }
        }
    )* };
}

impl<'ast> Visit<'ast> for Paths {
    where_counted! {
        visit_item_const ItemConst, visit_item_enum ItemEnum, visit_item_fn ItemFn, visit_item_impl ItemImpl,
        visit_item_static ItemStatic, visit_item_struct ItemStruct,
        visit_item_trait ItemTrait, visit_item_type ItemType, visit_item_union ItemUnion,
        visit_impl_item_const ImplItemConst, visit_impl_item_fn ImplItemFn, visit_impl_item_type ImplItemType,
        visit_impl_item_macro ImplItemMacro, visit_trait_item_fn TraitItemFn, visit_field Field, visit_variant Variant,
        visit_field_value FieldValue, visit_arm Arm, visit_local Local, visit_stmt_macro StmtMacro,
        visit_expr_block ExprBlock, visit_expr_call ExprCall, visit_expr_method_call ExprMethodCall,
    }

    // The calling crate resolves the paths in an exported macro.
    fn visit_item_macro(&mut self, node: &'ast syn::ItemMacro) {
        let is_exported = node.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"));
        if is_counted(&node.attrs) && !is_exported {
            visit::visit_item_macro(self, node);
        }
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        if is_counted(&node.attrs) && node.content.is_some() {
            self.module.push(node.ident.to_string());
            visit::visit_item_mod(self, node);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, node: &'ast syn::ItemUse) {
        if is_counted(&node.attrs) {
            imports(&node.tree, &[]).into_iter().for_each(|(path, _)| self.add(path));
        }
    }

    fn visit_path(&mut self, node: &'ast syn::Path) {
        if node.leading_colon.is_none() {
            self.add(node.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, node);
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        self.visit_path(&node.path);
        // Quoted code is of another crate.
        let is_quoted = node.path.segments.last().is_some_and(|last| last.ident == "quote");
        if is_quoted {
            return;
        }
        self.add_tokens(node.tokens.clone());
    }

    // `pub(in crate::…)` sets the visibility of an item, and imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// Whether code with these attributes is part of the library: neither for tests nor for documentation only.
pub(super) fn is_counted(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.map(Attribute::parse_args::<Meta>).all(|condition| condition.is_ok_and(|condition| may_hold(&condition)))
}

/// Whether a condition may hold for the library.
fn may_hold(condition: &Meta) -> bool {
    let parts = || match condition {
        Meta::List(list) => list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default(),
        _ => Punctuated::new(),
    };
    match condition.path().get_ident().map(ToString::to_string).as_deref() {
        Some("test" | "doc") => false,
        Some("all") => parts().iter().all(may_hold),
        Some("any") => parts().iter().any(may_hold),
        _ => true,
    }
}

/// The imports of a `use`: paths with their local names, or none for a glob.
pub(super) fn imports(tree: &syn::UseTree, before: &[String]) -> Vec<(Vec<String>, Option<String>)> {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        syn::UseTree::Path(path) => imports(&path.tree, &with(&path.ident)),
        syn::UseTree::Name(name) if name.ident == "self" => vec![(before.to_owned(), before.last().cloned())],
        syn::UseTree::Name(name) => vec![(with(&name.ident), Some(name.ident.to_string()))],
        syn::UseTree::Rename(name) if name.ident == "self" => vec![(before.to_owned(), Some(name.rename.to_string()))],
        syn::UseTree::Rename(name) => vec![(with(&name.ident), Some(name.rename.to_string()))],
        syn::UseTree::Glob(_) => vec![(before.to_owned(), None)],
        syn::UseTree::Group(group) => group.items.iter().flat_map(|tree| imports(tree, before)).collect(),
    }
}
