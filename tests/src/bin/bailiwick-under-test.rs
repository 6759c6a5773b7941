//! The program as tests start it, so that they can kill it: nextest builds a package's own programs only.

fn main() -> std::process::ExitCode {
    bailiwick::main()
}
