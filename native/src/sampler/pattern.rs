//! Regular expressions for the names of processes.

use regex_lite::Regex;

/// A regular expression for names; none for an empty one. The error says what is wrong with it.
pub fn pattern(text: &str) -> Result<Option<Regex>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    Regex::new(text).map(Some).map_err(|error| error.to_string())
}
