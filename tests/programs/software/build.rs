//! A real C project: Lua, built with `make -j2`.

use husk_tests::toolchain::{copy_files, lua_sources};
use husk_tests::{Case, Length};

const MAKEFILE: &str = include_str!("../sources/software/lua.mk");
const MAIN: &str = include_str!("../sources/software/lua-main.c");
const SCRIPT: &str = include_str!("../sources/software/build.sh");

#[test]
fn a_parallel_build_makes_the_same_bytes() {
    Case::new("lua", Length::Long, &["bash", "-euc", SCRIPT])
        .input(|work| {
            copy_files(&lua_sources(), &work.join("src"), &[".c", ".h"]);
            std::fs::write(work.join("src/Makefile"), MAKEFILE).expect("a makefile");
            std::fs::write(work.join("src/main.c"), MAIN).expect("a main program");
        })
        .check();
}
