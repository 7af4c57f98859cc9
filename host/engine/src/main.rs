//! Settings, run, exit code. The only place that reads the environment.

use std::process::ExitCode;

fn main() -> ExitCode {
    let environment = std::env::vars_os().collect();
    dovetail::cli::run(std::env::args_os(), &environment).into()
}
