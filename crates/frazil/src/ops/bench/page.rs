//! The report as a page.

use super::{Measured, Report};
use crate::page::chart::{Axis, Bars, Series};
use crate::page::{Cell, Page, Section, Table, Tone, number};

impl Report {
    /// The report as a page.
    pub fn page(&self) -> Page {
        let Self { model, batch, sequences, iterations, .. } = self;
        let tokens = number::thousands(self.tokens as u64);
        let lead = format!(
            "{sequences} sequences with {tokens} tokens, {batch} at a time; {iterations} rounds, in \
             which the variants take turns. Medians; padding is not counted as work."
        );
        Page::new(format!("How fast {model} runs here"))
            .lead(lead)
            .section(self.figures())
            .section(self.table())
            .section(self.charts())
            .section(self.steps())
            .section(self.machine())
    }

    fn figures(&self) -> Section {
        let fastest = self.variants.iter().max_by(|a, b| a.speedup.total_cmp(&b.speedup));
        let mut section = Section::new("In short");
        let Some(best) = fastest else { return section };
        let speed = &best.speed;
        section = match self.variants.len() {
            1 => section.text(format!("Of `{}`:", best.name)),
            count => section.text(format!("Of `{}`, the fastest of {count} variants:", best.name)),
        };
        section = section
            .figure("time to an answer", format!("{:.2} ms", speed.batch_median_ms), "a batch")
            .figure("throughput", per_second(speed.sequences_per_s), "sequences")
            .figure("tokens", per_second(speed.tokens_per_s), "no padding")
            .figure("of the machine's peak", format!("{:.0}%", speed.percent_of_peak), "");
        let first = &self.variants[0].name;
        if best.name != *first {
            let (value, note) = (format!("{:.2}x", best.speedup), format!("over `{first}`"));
            section = section.figure("speed-up", value, note);
        }
        section
    }

    fn table(&self) -> Section {
        let mut throughput = Table::new([
            "variant",
            "instructions",
            ">threads",
            ">sequences/s",
            ">tokens/s",
            ">GFLOP/s",
            ">of peak",
            ">speed-up",
        ])
        .caption("Throughput, all instances together");
        let mut latency = Table::new([
            "variant",
            ">batch",
            ">batch, p99",
            ">all",
            ">all, p90",
            ">all, least",
            ">to prepare",
        ])
        .caption("Milliseconds of an instance: for a batch, and for all sequences once");
        for Measured { name, speed, speedup, prepare_seconds, .. } in &self.variants {
            throughput.push([
                Cell::code(name),
                speed.isa.as_str().into(),
                match speed.instances {
                    1 => speed.threads.into(),
                    count => Cell::number(
                        (count * speed.threads) as f64,
                        format!("{count} × {}", speed.threads),
                    ),
                },
                speed.sequences_per_s.into(),
                speed.tokens_per_s.into(),
                speed.gflops.into(),
                Cell::number(speed.percent_of_peak, format!("{:.0}%", speed.percent_of_peak)),
                Cell::number(*speedup, format!("{speedup:.2}x")),
            ]);
            latency.push([
                Cell::code(name),
                speed.batch_median_ms.into(),
                speed.batch_p99_ms.into(),
                speed.median_ms.into(),
                speed.p90_ms.into(),
                speed.min_ms.into(),
                (*prepare_seconds * 1e3).into(),
            ]);
        }
        let section = Section::new("Variants").table(throughput).table(latency);
        let mut section = self
            .notes
            .iter()
            .fold(section, |section, note| section.note(Tone::Warning, note.clone()));
        for variant in &self.variants {
            for slow in &variant.slow {
                let text = format!("{}: runs by the plain kernel: {slow}", variant.name);
                section = section.note(Tone::Warning, text);
            }
        }
        section
    }

    fn charts(&self) -> Section {
        let names = || self.variants.iter().map(|variant| variant.name.clone());
        let values = |name: &str, value: fn(&Measured) -> f64| {
            Series::new(name, self.variants.iter().map(|variant| Some(value(variant))))
        };
        let throughput = Bars {
            about: "A bar for each variant; longer is faster.".into(),
            ..Bars::of(
                "Throughput, all instances together",
                Axis::new("sequences a second", ""),
                self.variants.iter().map(|m| (m.name.clone(), m.speed.sequences_per_s)),
            )
        };
        let latency = Bars {
            title: "Time of a batch".into(),
            about: "Half of the batches took less than the first bar; 99 of 100 less than the \
                    second. Shorter is faster."
                .into(),
            value: Axis::new("time to an answer", "ms"),
            groups: names().collect(),
            series: vec![
                values("median", |m| m.speed.batch_median_ms),
                values("99 of 100", |m| m.speed.batch_p99_ms),
            ],
            goals: Vec::new(),
        };
        let section = Section::new("Throughput and latency").chart(throughput).chart(latency);
        let several = self.variants.iter().filter(|m| m.speed.instances > 1);
        several.fold(section, |section, m| {
            let bars = m.speed.instance_median_ms.iter().enumerate();
            section.chart(Bars {
                about: "A bar for each instance: they should be alike.".into(),
                ..Bars::of(
                    format!("{}: each of the {} instances", m.name, m.speed.instances),
                    Axis::new("median of all sequences once", "ms"),
                    bars.map(|(i, &ms)| (format!("instance {}", i + 1), ms)),
                )
            })
        })
    }

    /// Time by kind of step, where it was asked for.
    fn steps(&self) -> Section {
        let profiled: Vec<&Measured> =
            self.variants.iter().filter(|m| !m.profile.is_empty()).collect();
        let mut kinds: Vec<String> = Vec::new();
        for step in profiled.iter().flat_map(|m| &m.profile) {
            if !kinds.contains(&step.kind) {
                kinds.push(step.kind.clone());
            }
        }
        let section = Section::new("Where time goes");
        if kinds.is_empty() {
            return section;
        }
        let of = |m: &Measured, kind: &str| {
            m.profile.iter().find(|step| step.kind == kind).map(|step| step.seconds * 1e3)
        };
        let series = profiled
            .iter()
            .map(|m| Series::new(m.name.clone(), kinds.iter().map(|kind| of(m, kind))));
        let mut table = Table::new(["variant", "step", ">times", ">ms", ">GFLOP/s", ">GB/s"]);
        for m in &profiled {
            for step in &m.profile {
                table.push([
                    Cell::code(&m.name),
                    step.kind.as_str().into(),
                    step.steps.into(),
                    (step.seconds * 1e3).into(),
                    (step.operations / step.seconds / 1e9).into(),
                    (step.bytes / step.seconds / 1e9).into(),
                ]);
            }
        }
        section
            .chart(Bars {
                title: "Time by kind of step".into(),
                about: "Of one run over all sequences in which every step was timed.".into(),
                value: Axis::new("time", "ms"),
                series: series.collect(),
                groups: kinds,
                goals: Vec::new(),
            })
            .table(table)
    }

    fn machine(&self) -> Section {
        let mut table = Table::new([
            "instructions",
            ">threads",
            ">float32, GFLOP/s",
            ">int8, GOP/s",
            ">memory, GB/s",
        ])
        .caption("What this machine can do");
        for peak in &self.peaks {
            table.push([
                peak.isa.as_str().into(),
                peak.threads.into(),
                peak.f32_gflops.into(),
                peak.int8_gops.into(),
                peak.memory_gbs.into(),
            ]);
        }
        Section::new("Machine and memory")
            .table(table)
            .figure("resident", format!("{:.0} MB", self.resident_mb), "while it ran")
            .figure("at most", format!("{:.0} MB", self.peak_rss_mb), "while it was prepared")
    }
}

fn per_second(count: f64) -> String {
    format!("{} / s", number::short(count))
}
