//! Where the code of the interpreter's evaluation loop is: by its file, and learned from stacks.

use super::native::Native;
use crate::memory::Memory;
use crate::pe::Pe;
use crate::runtime::cpython::PyStack;
use crate::stack::{EVALUATION, Evaluation, Part, evaluation_of_file, unknown_evaluations};
use crate::target::Mapping;
use crate::target::os::Process;
use crate::unwind::NativeFrame;

impl Native {
    /// Finds the evaluation loop of the interpreter whose `_PyRuntime` is at `runtime`.
    pub fn find_evaluation(&mut self, process: &Process, runtime: u64) {
        let after = self.mappings.partition_point(|mapping| mapping.start <= runtime);
        let is_file = |mapping: &&Mapping| mapping.inode != 0 || mapping.is_module();
        let Some(file) = self.mappings[..after].iter().rev().find(is_file) else { return };
        let same = |other: &&Mapping| other.file() == file.file() && other.executable();
        self.interpreter = Some(file.clone());
        let Some(code) = self.mappings.iter().find(same) else { return };
        if code.is_module() {
            let exported = Pe::read(process, code.start).and_then(|pe| pe.export(process, EVALUATION).ok()?);
            let parts = exported.map_or_else(Vec::new, |address| self.unwinder.parts(process, address));
            self.evaluation = Evaluation::new(parts.into_iter().map(|range| (range, Part::Whole)).collect());
            return;
        }
        if let Ok(file) = process.open_mapped_file(code)
            && let Some(bias) = self.unwinder.bias(code.start)
        {
            self.evaluation = evaluation_of_file(file).loaded(bias);
        }
    }

    /// Learns from a stack where parts of the evaluation loop are that the interpreter's file does not name: stripped
    /// ones name the function, not what the compiler split off it, and some not even that. True if there was something
    /// to learn.
    pub(super) fn learn(&mut self, memory: &dyn Memory, python: &PyStack) -> bool {
        let mut learned = false;
        for index in unknown_evaluations(&self.frames, &self.evaluation, &python.groups) {
            let NativeFrame { lookup, mapping, .. } = self.frames[index as usize];
            let file = self.mappings.get(mapping as usize).map(Mapping::file);
            if file.is_some()
                && file == self.interpreter.as_ref().map(Mapping::file)
                && let Some(range) = self.unwinder.function(memory, lookup)
            {
                learned |= self.evaluation.add(range);
            }
        }
        learned
    }
}
