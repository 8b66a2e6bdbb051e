//! How long functions are, by syntax: from `fn` to the closing brace.

use syn::visit::{self, Visit};

/// A function and its length.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of `fn`.
    pub line: usize,
    /// Lines, both ends counted.
    pub length_lines: usize,
}

/// All functions of a file, nested ones too; `None` when it is not Rust that `syn` can read.
pub fn functions(source: &str) -> Option<Vec<Function>> {
    let file = syn::parse_file(source).ok()?;
    let mut found = Found(Vec::new());
    found.visit_file(&file);
    Some(found.0)
}

struct Found(Vec<Function>);

impl Found {
    fn note(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.fn_token.span.start().line;
        let last = block.brace_token.span.close().end().line;
        let name = signature.ident.to_string();
        self.0.push(Function { name, line, length_lines: last + 1 - line });
    }
}

impl<'a> Visit<'a> for Found {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.note(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_from_fn_to_brace() {
        let source =
            "/// Doc.\n#[inline]\nfn a() {\n    b();\n}\nimpl X {\n    fn c(&self) {}\n}\n";
        let all = functions(source).expect("valid Rust");
        let of =
            |name: &str, line, length_lines| Function { name: name.into(), line, length_lines };
        assert_eq!(all, [of("a", 3, 3), of("c", 7, 1)]);
    }
}
