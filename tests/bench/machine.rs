//! What the machine says: CPU time, memory, and how long one `fdatasync` takes.

use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

/// User-visible ticks a second: 100 on every Linux that this runs on (proc(5), sysconf(3)).
const TICKS_PER_SECOND: u64 = 100;
const SYNCS: usize = 100;
/// As much as Postgres writes of its log at once.
const PAGE: [u8; 8_192] = [0x5a; 8_192];

pub(crate) fn words() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name\t: "));
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("?");
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{cores} cores, {}, Linux {}, load {load} before the run",
        model.unwrap_or("unknown"),
        kernel.trim()
    )
}

/// CPU time of a running process: of all its threads that live, to the nanosecond.
pub(crate) fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
        })
        .sum()
}

/// CPU time of a process, its children, and the children that it had.
pub(crate) fn cpu_of_family(pid: u32) -> Duration {
    let mut family = cpu(pid) + cpu_of_dead_children(pid);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let id = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if let Some(id) = id
            && fields(id).get(1).is_some_and(|parent| *parent == pid.to_string())
        {
            family += cpu(id);
        }
    }
    family
}

fn cpu_of_dead_children(pid: u32) -> Duration {
    let fields = fields(pid);
    // cutime and cstime are fields 16 and 17, the state is field 3 (proc(5)).
    let ticks: u64 =
        fields.iter().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}

/// Of `/proc/<pid>/stat`, from the state on: the name before it may hold anything.
fn fields(pid: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rfind(')').map_or("", |end| &stat[end + 1..]);
    after.split_whitespace().map(str::to_owned).collect()
}

/// Resident memory, in kB of 1,024 bytes.
pub(crate) fn resident_kb(pid: u32) -> anyhow::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the process ended")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("no VmRSS in its status")
}

/// Times to make one page durable, in a file that has its full length already.
pub(crate) fn fdatasync(dir: &Path) -> anyhow::Result<Vec<Duration>> {
    let mut file = tempfile::tempfile_in(dir)?;
    for _ in 0..256 {
        file.write_all(&PAGE)?;
    }
    file.sync_all()?;
    let mut times = Vec::with_capacity(SYNCS);
    for page in 0..SYNCS {
        file.seek(SeekFrom::Start((page % 256 * PAGE.len()) as u64))?;
        file.write_all(&PAGE)?;
        let began = Instant::now();
        file.sync_data()?;
        times.push(began.elapsed());
    }
    Ok(times)
}
