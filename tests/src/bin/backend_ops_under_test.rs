//! `backend-ops` once more, because cargo gives a test the path only of its own package's binaries.

fn main() -> std::process::ExitCode {
    backend_ops::main()
}
