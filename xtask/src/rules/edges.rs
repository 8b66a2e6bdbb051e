//! Which package may depend on which: the direction of the data path, as a table.
//!
//! ```text
//! runtime -> client -> proto <- kernel -> region -> host -> abi
//!     '----> carrier ----------^ (carrier is the one place that knows kernels)
//! ```
//!
//! Invariants
//! 1. `client` and `kernel` meet only in `proto`.
//! 2. Nothing but tests depends on `models` and `sim`.
//! 3. What runs inside an application links nothing but `linux-raw-sys`.
//! 4. `anyhow` stays with the programs people start.
//!
//! Between the folders of one crate: `siblings`.
//!
//! Dev-dependencies are free: a test may look at anything. A new row needs a decision in
//! `docs/adr/`.

use super::finding::Finding;
use crate::workspace::{Package, Workspace};

/// Package, the project's packages it may use, the foreign ones (`*` = any).
const ALLOWED: &[(&str, &[&str], &[&str])] = &[
    ("husk-abi", &[], &["linux-raw-sys"]),
    ("husk-proto", &["husk-abi"], &[]),
    ("husk-host", &["husk-abi"], &["linux-raw-sys"]),
    ("husk-region", &["husk-abi", "husk-host"], &[]),
    ("husk-kernel", &["husk-abi", "husk-proto", "husk-region"], &[]),
    (
        "husk-carrier",
        &[
            "husk-abi",
            "husk-proto",
            "husk-region",
            "husk-kernel",
            "husk-host",
            "husk-wire",
            "husk-link",
        ],
        &["linux-raw-sys"],
    ),
    (
        "husk-node",
        &[
            "husk-abi",
            "husk-proto",
            "husk-wire",
            "husk-link",
            "husk-client",
            "husk-carrier",
            "husk-host",
        ],
        &["rustix"],
    ),
    ("husk-wire", &["husk-abi"], &[]),
    ("husk-link", &["husk-abi", "husk-host", "husk-wire"], &[]),
    ("husk-client", &["husk-abi", "husk-proto"], &[]),
    (
        "husk-runtime",
        &["husk-abi", "husk-proto", "husk-region", "husk-carrier", "husk-client", "husk-host"],
        &["linux-raw-sys"],
    ),
    ("husk-rewrite", &["husk-abi"], &["*"]),
    (
        "husk-supervisor",
        &[
            "husk-abi",
            "husk-proto",
            "husk-region",
            "husk-kernel",
            "husk-carrier",
            "husk-host",
            "husk-rewrite",
            "husk-storage",
            "husk-node",
        ],
        &["*"],
    ),
    ("husk-net", &["husk-abi", "husk-host"], &["*"]),
    ("husk-storage", &[], &["rustix", "serde", "serde_json", "crc-fast", "zerocopy"]),
    ("tenacious", &["husk-storage"], &["rustix"]),
    ("tenacious-c", &["tenacious"], &[]),
    (
        "husk",
        &[
            "husk-link",
            "husk-wire",
            "husk-net",
            "husk-storage",
            "husk-supervisor",
            "husk-abi",
            "husk-proto",
        ],
        &["*"],
    ),
    ("husk-models", &["husk-abi", "husk-proto"], &[]),
    ("husk-sim", &["*"], &["*"]),
    ("husk-tests", &["*"], &["*"]),
    ("xtask", &[], &["*"]),
];

/// Who may use `anyhow`: errors there are told to people, not handled.
const ANYHOW: &[&str] = &["husk", "husk-tests", "xtask"];
/// Packages that only tests may use.
const FOR_TESTS_ONLY: &[&str] = &["husk-models", "husk-sim", "husk-tests", "xtask"];

/// Checks every edge of every package of the project.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let own: Vec<&str> = workspace.members().map(|package| package.name.as_str()).collect();
    workspace.members().flat_map(|package| check_package(workspace, package, &own)).collect()
}

fn check_package(workspace: &Workspace, package: &Package, own: &[&str]) -> Vec<Finding> {
    let path = workspace.relative(&package.manifest_path);
    let Some((_, rooms, foreign)) = ALLOWED.iter().find(|row| row.0 == package.name) else {
        let text = format!("package {} has no row in xtask/src/rules/edges.rs", package.name);
        return vec![Finding::new(&path, 0, text)];
    };
    let shipped = package.dependencies.iter().filter(|edge| edge.kind.as_deref() != Some("dev"));
    shipped
        .filter(|edge| !may_use(package, &edge.name, own, rooms, foreign))
        .map(|edge| {
            let text = format!("{} must not depend on {}", package.name, edge.name);
            Finding::new(&path, 0, text)
        })
        .collect()
}

fn may_use(
    package: &Package,
    target: &str,
    own: &[&str],
    rooms: &[&str],
    foreign: &[&str],
) -> bool {
    let name = package.name.as_str();
    let test_only = FOR_TESTS_ONLY.contains(&target) && !FOR_TESTS_ONLY.contains(&name);
    let anyhow = target == "anyhow" && !ANYHOW.contains(&name);
    let list = if own.contains(&target) { rooms } else { foreign };
    !test_only && !anyhow && (list.contains(&"*") || list.contains(&target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    /// A package and what it uses, with the kind of each edge.
    type Row<'a> = (&'a str, &'a [(&'a str, Option<&'a str>)]);

    fn workspace(edges: &[Row<'_>]) -> Workspace {
        let package = |(name, uses): &Row<'_>| Package {
            name: (*name).to_owned(),
            dependencies: uses
                .iter()
                .map(|(name, kind)| Dependency {
                    name: (*name).to_owned(),
                    kind: kind.map(str::to_owned),
                })
                .collect(),
            license: None,
            manifest_path: format!("/w/{name}/Cargo.toml").into(),
            targets: Vec::new(),
            source: None,
        };
        let packages = edges.iter().map(package).collect();
        Workspace::of(packages, &[])
    }

    fn texts(edges: &[Row<'_>]) -> Vec<String> {
        check(&workspace(edges)).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_client_that_names_a_kernel_is_refused() {
        let edges: &[Row<'_>] = &[("husk-client", &[("husk-kernel", None)]), ("husk-kernel", &[])];
        assert_eq!(texts(edges), ["husk-client must not depend on husk-kernel"]);
    }

    #[test]
    fn a_build_dependency_counts_and_a_dev_dependency_does_not() {
        let edges: &[Row<'_>] = &[
            ("husk-kernel", &[("husk-models", Some("dev")), ("husk-carrier", Some("build"))]),
            ("husk-models", &[]),
            ("husk-carrier", &[]),
        ];
        assert_eq!(texts(edges), ["husk-kernel must not depend on husk-carrier"]);
    }

    #[test]
    fn nothing_shipped_depends_on_a_model() {
        let edges: &[Row<'_>] =
            &[("husk-supervisor", &[("husk-models", None)]), ("husk-models", &[])];
        assert_eq!(texts(edges), ["husk-supervisor must not depend on husk-models"]);
    }

    #[test]
    fn what_runs_inside_an_application_links_no_foreign_package() {
        assert_eq!(
            texts(&[("husk-kernel", &[("serde", None)])]),
            ["husk-kernel must not depend on serde"]
        );
    }

    #[test]
    fn a_room_that_uses_anyhow_is_refused() {
        assert_eq!(
            texts(&[("husk-rewrite", &[("object", None), ("anyhow", None)])]),
            ["husk-rewrite must not depend on anyhow"]
        );
    }

    #[test]
    fn a_package_without_a_row_is_refused() {
        assert_eq!(
            texts(&[("husk-new", &[])]),
            ["package husk-new has no row in xtask/src/rules/edges.rs"]
        );
    }

    #[test]
    fn an_allowed_edge_passes() {
        let edges: &[Row<'_>] = &[
            ("husk-kernel", &[("husk-proto", None), ("husk-region", None)]),
            ("husk-proto", &[("husk-abi", None)]),
            ("husk-abi", &[("linux-raw-sys", None)]),
            ("husk-region", &[]),
        ];
        assert_eq!(texts(edges), Vec::<String>::new());
    }
}
