//! The line program of one unit, streamed.

use std::collections::HashMap;
use std::rc::Rc;

use gimli::{ColumnType, UnitRef};

use super::{Budget, Slice, Stop};

/// Most bytes of one path.
const MAX_PATH: usize = 16 << 10;

/// A place in the source. `file` is an index into the unit's table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// None = unknown.
    pub file: Option<u64>,
    /// 0 = unknown.
    pub line: u32,
    /// 0 = unknown.
    pub column: u32,
}

/// The row that each of the sorted `addresses` belongs to.
pub fn rows(
    unit: UnitRef<'_, Slice<'_>>,
    addresses: &[u64],
    floor: u64,
    budget: &Budget,
) -> Result<Vec<Option<Row>>, Stop> {
    let mut found = vec![None; addresses.len()];
    let Some(program) = unit.line_program.clone() else { return Ok(found) };
    let mut program = program.rows();
    let mut before: Option<(u64, Row)> = None;
    // Within a sequence addresses only rise: the next probe to be met stands at `next`.
    let mut next = 0;
    let mut missing = addresses.len();
    while missing > 0 {
        budget.step()?;
        // What was found before a broken opcode stands.
        let Ok(Some((_, row))) = program.next_row() else { break };
        let address = row.address();
        match before {
            None => next = addresses.partition_point(|&probe| probe < address.max(floor)),
            Some((start, place)) if start >= floor => {
                while next < addresses.len() && addresses[next] < address {
                    if addresses[next] >= start && found[next].is_none() {
                        found[next] = Some(place);
                        missing -= 1;
                    }
                    next += 1;
                }
            }
            Some(_) => {}
        }
        before = if row.end_sequence() {
            None
        } else {
            let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
            let column = match row.column() {
                ColumnType::LeftEdge => 0,
                ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
            };
            Some((address, Row { file: Some(row.file_index()), line, column }))
        };
    }
    Ok(found)
}

/// The paths of a unit's source files.
pub struct Files<'a, 'u> {
    unit: UnitRef<'u, Slice<'a>>,
    paths: HashMap<u64, Option<Rc<str>>>,
}

impl<'a, 'u> Files<'a, 'u> {
    /// The files of `unit`.
    pub fn new(unit: UnitRef<'u, Slice<'a>>) -> Self {
        Files { unit, paths: HashMap::new() }
    }

    /// The path of a file by its index.
    pub fn path(&mut self, index: Option<u64>) -> Option<Rc<str>> {
        let index = index?;
        if let Some(path) = self.paths.get(&index) {
            return path.clone();
        }
        let path = self.render(index).map(|path| Rc::from(String::from_utf8_lossy(&path).as_ref()));
        self.paths.insert(index, path.clone());
        path
    }

    /// Compilation directory, the file's directory, its name: an absolute part replaces those before it.
    fn render(&self, index: u64) -> Option<Vec<u8>> {
        let header = self.unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let mut path = self.unit.comp_dir.map_or(Vec::new(), |directory| directory.slice().to_vec());
        if file.directory_index() != 0
            && let Some(directory) = file.directory(header)
        {
            push(&mut path, self.unit.attr_string(directory).ok()?.slice());
        }
        push(&mut path, self.unit.attr_string(file.path_name()).ok()?.slice());
        (path.len() <= MAX_PATH).then_some(path)
    }
}

fn push(path: &mut Vec<u8>, part: &[u8]) {
    if part.starts_with(b"/") {
        path.clear();
    } else if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(part);
}
