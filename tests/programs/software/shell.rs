//! bash: pipelines, here-documents, process substitution, job control, traps.

use husk_tests::{Case, Length};

#[test]
fn pipelines_here_documents_and_process_substitution() {
    Case::new(
        "bash",
        Length::Short,
        &["bash", "-euc", include_str!("../sources/software/shell.sh")],
    )
    .check();
}

#[test]
fn job_control_and_traps() {
    Case::new("jobs", Length::Short, &["bash", "-c", include_str!("../sources/software/jobs.sh")])
        .check();
}

#[test]
fn scripts_and_programs_that_lie_in_the_image() {
    Case::new("exec", Length::Short, &["bash", "-c", include_str!("../sources/software/exec.sh")])
        .check();
}

#[test]
fn an_interactive_shell_stops_and_continues_its_jobs_at_a_terminal() {
    let script = include_str!("../sources/software/terminal.py");
    Case::new("terminal", Length::Once, &["python3", "-c", script]).check();
}
