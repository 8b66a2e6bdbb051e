# cargo builds, tests and runs a small crate.
export CARGO_TARGET_DIR=$PWD/target CARGO_NET_OFFLINE=true
mkdir -p c/src && cd c
printf '[package]\nname = "c"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' > Cargo.toml
printf '/// ```\n/// assert_eq!(c::twice(2), 4);\n/// ```\npub fn twice(n: i32) -> i32 { 2 * n }\n#[test]\nfn is_twice() { assert_eq!(twice(3), 6); }\n' > src/lib.rs
cargo test --quiet 2> /dev/null | grep -c 'test result: ok. 1 passed'
echo 'fn main() { println!("built {}", c::twice(21)); }' > src/main.rs
cargo run --quiet
# A backtrace names functions: the standard library finds the program's file in its maps.
printf 'fn inner(n: u32) -> u32 { if n == 3 { panic!("deep") } inner(n + 1) + 1 }\nfn main() { println!("{}", inner(0)); }\n' > src/main.rs
(RUST_BACKTRACE=1 cargo run --quiet 2>&1 || true) | grep -cE 'c::(inner|main)$'
cd .. && rm -rf target c
