//! The demo server as tests start it: nextest builds a package's own programs only.

fn main() -> std::process::ExitCode {
    bailiwick_demo::main()
}
