use std::process::ExitCode;

fn main() -> ExitCode {
    bailiwick_demo::main()
}
