//! What test runners said at their ends, and what failed and why: the last lines of a check.

/// Lines of failures shown.
const FAILED_LINES_MAX: usize = 60;

/// The runners' results (those without a test aside) and the last lines of what failed, from all
/// that they printed.
pub fn of(said: &str) -> String {
    let (mut results, mut failed) = (String::new(), Vec::new());
    let (mut runner, mut inside) = ("", false);
    for line in said.lines() {
        let words = line.trim_start();
        if words.starts_with("Running ") || words.starts_with("Doc-tests ") {
            runner = line;
        } else if line.starts_with("test result: ") {
            if !line.contains(" 0 passed; 0 failed; ") {
                results.push_str(&format!("{runner}\n{line}\n"));
            }
            inside = false;
        } else if line == "failures:" {
            inside = true;
        }
        if inside && !line.is_empty() {
            failed.push(line);
        }
    }
    let skipped = failed.len().saturating_sub(FAILED_LINES_MAX);
    failed.iter().skip(skipped).fold(results, |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_below_their_runners_and_failures_behind_them() {
        let said = "   Compiling a\n     Running tests/a.rs (target/a)\n\nrunning 2 tests\n\
            test one ... ok\ntest two ... FAILED\n\nfailures:\n\n---- two stdout ----\nwhy\n\n\
            failures:\n    two\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n\n\
            Running tests/b.rs (target/b)\ntest result: ok. 0 passed; 0 failed; 0 ignored\n\
            Doc-tests c\ntest result: ok. 3 passed; 0 failed; 0 ignored\n";
        let shown = "     Running tests/a.rs (target/a)\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored\nDoc-tests c\n\
            test result: ok. 3 passed; 0 failed; 0 ignored\n\
            failures:\n---- two stdout ----\nwhy\nfailures:\n    two\n";
        assert_eq!(of(said), shown);
    }

    #[test]
    fn of_many_failures_the_last_are_shown() {
        let lines: String = (0..200).map(|line| format!("{line}\n")).collect();
        let shown = of(&format!("failures:\n{lines}test result: FAILED. 0 passed; 1 failed;\n"));
        assert_eq!(shown.lines().count(), 2 + FAILED_LINES_MAX);
        assert!(shown.ends_with("\n199\n"), "{shown}");
    }
}
