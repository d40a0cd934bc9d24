//! What a record says of the machine it was made on.

use std::fs;
use std::process::Command;

use serde::Serialize;

/// The machine.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// The CPU's own name for itself.
    pub cpu: String,
    /// CPUs that this process may use.
    pub threads: usize,
    /// The widest vector instructions: what decides which kernels run.
    pub isa: &'static str,
    /// Main memory.
    pub memory_gib: u64,
    /// Operating system and kernel.
    pub system: String,
}

impl Machine {
    /// This one. What the system does not tell is `unknown`.
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = field(&meminfo, "MemTotal").and_then(|v| v.split(' ').next()?.parse().ok());
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            isa: isa(field(&cpuinfo, "flags").unwrap_or_default()),
            memory_gib: kilobytes.map_or(0, |kb: u64| kb.div_ceil(1 << 20)),
            system: format!("{} {}", std::env::consts::OS, release.trim()),
        }
    }

    /// The CPU as part of a file name. Its instructions are in it, too: some machines tell no more of
    /// their CPU than who made it.
    pub fn slug(&self) -> String {
        let kept = self.cpu.replace("(R)", "").replace("(TM)", "").replace("CPU", "");
        let kept = format!("{kept} {}", self.isa);
        let words = kept.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join("-").to_lowercase()
    }
}

/// The value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|k| k.trim() == key))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn isa(flags: &str) -> &'static str {
    let has = |flag| flags.split(' ').any(|f| f == flag);
    match () {
        () if has("avx512_vnni") => "avx512_vnni",
        () if has("avx512f") => "avx512",
        () if has("avx2") => "avx2",
        () if has("sse4_2") => "sse4_2",
        () => "unknown",
    }
}

/// The first line that a program prints, `rustc --version` for example.
pub fn first_line(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(crate::root()).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_linux_says() {
        let text = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.80GHz\nflags\t\t: sse4_2 avx2\n";
        assert_eq!(field(text, "model name"), Some("Intel(R) Xeon(R) CPU @ 2.80GHz"));
        assert_eq!(isa(field(text, "flags").unwrap()), "avx2");
        assert_eq!(field(text, "cache"), None);
    }

    #[test]
    fn slugs_are_file_names() {
        let mut machine = Machine::here();
        machine.cpu = "Intel(R) Xeon(R) Processor @ 2.80GHz".into();
        machine.isa = "avx512_vnni";
        assert_eq!(machine.slug(), "intel-xeon-processor-2.80ghz-avx512-vnni");
        machine.cpu = "AMD EPYC 7B13".into();
        machine.isa = "avx2";
        assert_eq!(machine.slug(), "amd-epyc-7b13-avx2");
    }
}
