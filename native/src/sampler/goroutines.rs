//! Goroutines of a Go program, read by the sampler process because it is the one that may trace.

use super::Sampler;
use crate::error::{Error, ErrorKind};
use crate::protocol::Event;
use crate::runtime::go::goroutines;
use crate::target::linux;

impl Sampler {
    /// Not while sampling: whatever stops is then a sample.
    pub(super) fn goroutines(&self, pid: u32, system: bool) -> Result<Event, Error> {
        if self.options.is_some() {
            return Err(Error::new(
                ErrorKind::Failed,
                "a recording is under way",
                "read goroutines before or after it",
            ));
        }
        linux::check_not_traced(pid)?;
        Ok(Event::Goroutines(Box::new(goroutines::read(pid, system)?)))
    }
}
