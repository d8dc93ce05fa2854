//! `weigh` of the `_native` module: what each function of a profile took.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxHashMap;

/// What is known of the functions that samples pass through.
#[derive(Default)]
struct Weights<'py> {
    /// Address of a location → its functions in `numbers`, from and to.
    known: FxHashMap<usize, (usize, usize)>,
    numbers: Vec<usize>,
    /// While they are held, no other location can have their address.
    held: Vec<Bound<'py, PyAny>>,
    flat: Vec<i128>,
    cumulative: Vec<i128>,
    /// For each function, the last sample that was counted for it.
    counted: Vec<usize>,
}

impl<'py> Weights<'py> {
    fn functions(&mut self, location: &Bound<'py, PyAny>, ask: &Bound<'py, PyAny>) -> PyResult<(usize, usize)> {
        let address = location.as_ptr() as usize;
        if let Some(&known) = self.known.get(&address) {
            return Ok(known);
        }
        let numbers: Vec<usize> = ask.call1((location,))?.extract()?;
        let range = (self.numbers.len(), self.numbers.len() + numbers.len());
        self.numbers.extend(numbers);
        self.held.push(location.clone());
        self.known.insert(address, range);
        Ok(range)
    }

    fn add(&mut self, sample: usize, number: usize, value: i128) {
        if number >= self.counted.len() {
            self.flat.resize(number + 1, 0);
            self.cumulative.resize(number + 1, 0);
            self.counted.resize(number + 1, 0);
        }
        // Once, however often the stack passes through it.
        if self.counted[number] != sample {
            self.counted[number] = sample;
            self.cumulative[number] += value;
        }
    }
}

/// For each function number, its own value and that of all stacks it is in.
#[pyfunction]
pub fn weigh<'py>(
    samples: &Bound<'py, PyAny>,
    column: usize,
    functions_of: &Bound<'py, PyAny>,
) -> PyResult<(Vec<i128>, Vec<i128>)> {
    let py = samples.py();
    let mut weights = Weights::default();
    for (index, sample) in samples.try_iter()?.enumerate() {
        let sample = sample?;
        let value = sample.getattr(intern!(py, "values"))?.get_item(column)?;
        let value = value.extract::<i64>().map(i128::from).or_else(|_| value.extract::<i128>())?;
        if value == 0 {
            continue;
        }
        let locations = sample.getattr(intern!(py, "locations"))?.cast_into::<PyTuple>()?;
        let mut leaf = true;
        for location in locations.iter_borrowed() {
            let (from, to) = weights.functions(&location, functions_of)?;
            for at in from..to {
                let number = weights.numbers[at];
                weights.add(index + 1, number, value);
                if std::mem::take(&mut leaf) {
                    weights.flat[number] += value;
                }
            }
        }
    }
    Ok((weights.flat, weights.cumulative))
}
