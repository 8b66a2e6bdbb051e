//! Tools that work on whole trees: tar, find, rm -r, cp -a, sed -i, install.

use husk_tests::{Case, Length};

#[test]
fn trees_survive_copying_packing_and_removing() {
    Case::new("tools", Length::Short, &["bash", "-euc", include_str!("sources/tools.sh")])
        .input(|work| {
            for number in 0..40 {
                let directory = work.join(format!("host/d{}", number % 5));
                std::fs::create_dir_all(&directory).expect("a directory");
                let text = format!("host file {number}\n").repeat(number);
                std::fs::write(directory.join(format!("f{number}")), text).expect("a file");
            }
            std::os::unix::fs::symlink("d1/f1", work.join("host/link")).expect("a link");
        })
        .check();
}
