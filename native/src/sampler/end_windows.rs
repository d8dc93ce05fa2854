//! The end of a window, and of the recording: all that was counted is handed over.

use std::io::{self, Write};

use super::{Sampler, not_python};
use crate::protocol::Event;
use crate::target::sys;

impl<W: Write> Sampler<W> {
    /// Ends a window; sampling goes on.
    pub(super) fn cut(&mut self) -> io::Result<()> {
        if self.options.is_none() {
            return Ok(()); // all is handed over
        }
        let now = sys::monotonic_ns();
        let rate = self.pace.rate();
        for (index, shown) in self.shown(now, false)?.iter().enumerate() {
            let subject = &mut self.subjects[index];
            if subject.ended {
                continue;
            }
            subject.stats.final_rate_hz = rate;
            let batch = subject.cut(now, shown);
            self.delivered.0 += batch.stats.samples;
            self.delivered.1 = self.delivered.1.max(batch.stats.pause.quantile(0.99));
            self.say(&Event::Part(Box::new(batch)))?;
        }
        self.say(&Event::Cut)
    }

    /// Ends sampling and hands every target's batch over.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let rate = self.pace.rate();
        self.options = None;
        let now = sys::monotonic_ns();
        let shown = self.shown(now, true)?;
        self.following = None;
        let runtime = self.has_runtime || self.subjects.iter().any(|subject| !subject.runtime_name().is_empty());
        for (mut subject, shown) in std::mem::take(&mut self.subjects).into_iter().zip(shown) {
            let process = &subject.process;
            if subject.root && subject.ended {
                let status = if subject.launched { process.exit_code() } else { -1 };
                self.say(&Event::Exited { pid: process.pid, status })?;
            }
            if subject.launched && !subject.native() && !runtime {
                self.say(&Event::Failed(not_python(process.pid, &process.name)))?;
            }
            subject.stats.final_rate_hz = rate;
            let batch = subject.finish(now, &shown);
            self.say(&Event::Batch(Box::new(batch)))?;
        }
        self.say(&Event::Finished)
    }
}
