//! The end of a window within a recording: sampling goes on.

use std::io;

use super::Sampler;
use crate::protocol::Event;
use crate::target::sys;

impl Sampler {
    /// Hands over what was counted since the last window. Nothing waits for the supervisor, and no tick is lost: what is
    /// under way belongs to the next window.
    pub(super) fn cut(&mut self) -> io::Result<()> {
        if self.options.is_none() {
            return Ok(()); // all is handed over
        }
        let now = sys::monotonic_ns();
        let shown = self.cut_tree(now)?;
        let rate = self.pace.rate();
        for (index, shown) in shown.iter().enumerate() {
            let subject = &mut self.subjects[index];
            if subject.ended {
                continue;
            }
            subject.stats.final_rate_hz = rate;
            let batch = subject.cut(now, shown);
            self.delivered.samples += batch.stats.samples;
            self.delivered.pause_p99 = self.delivered.pause_p99.max(batch.stats.pause.quantile(0.99));
            self.post(&Event::Part(Box::new(batch)))?;
        }
        self.post(&Event::Cut)
    }
}
