use std::process::ExitCode;

fn main() -> ExitCode {
    bailiwick::main()
}
