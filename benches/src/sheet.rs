//! The cells in a folder, and the chart of them.

use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::cell::Cell;
use crate::chart;

const MATRIX: &str = "performance-matrix.csv";
const CHART: &str = "performance.svg";

/// Puts cells into a folder, in the place of those of the same databases, and draws the chart anew:
/// not everything is measured by one program.
///
/// # Errors
///
/// The folder cannot be written, or what is there cannot be read.
pub fn write(cells: Vec<Cell>, folder: &Path) -> Result<(), Box<dyn Error>> {
    let path = folder.join(MATRIX);
    let earlier = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let cells = replaced(Cell::read(&earlier)?, cells);
    let lines: String = cells.iter().map(Cell::csv).collect();
    fs::write(&path, Cell::CSV_HEAD.to_owned() + &lines)?;
    chart::draw(&cells, &folder.join(CHART))
}

/// Draws the chart of the cells in a folder anew.
///
/// # Errors
///
/// There are none, or the chart cannot be written.
pub fn redraw(folder: &Path) -> Result<(), Box<dyn Error>> {
    let cells = Cell::read(&fs::read_to_string(folder.join(MATRIX))?)?;
    chart::draw(&cells, &folder.join(CHART))
}

/// The cells that were there, but for the databases that were measured again; these are where they
/// were, and new ones at the end.
fn replaced(earlier: Vec<Cell>, measured: Vec<Cell>) -> Vec<Cell> {
    let mut databases: Vec<String> = Vec::new();
    for cell in earlier.iter().chain(&measured) {
        if !databases.contains(&cell.database) {
            databases.push(cell.database.clone());
        }
    }
    let again = |cell: &Cell| measured.iter().any(|new| new.database == cell.database);
    let mut cells: Vec<Cell> = earlier.into_iter().filter(|cell| !again(cell)).collect();
    cells.extend(measured);
    // Stable: the order within a database stays.
    cells.sort_by_key(|cell| databases.iter().position(|name| *name == cell.database));
    cells
}

#[cfg(test)]
mod tests {
    use super::replaced;
    use crate::cell::Cell;
    use crate::load::Case;
    use crate::stats::Estimate;

    fn cell(database: &str, subject: &str) -> Cell {
        Cell {
            database: database.into(),
            case: Case::NewKey,
            clients: 1,
            bytes: 1024,
            subject: subject.into(),
            ratio: Estimate::counted(1.0),
            rate: Estimate::counted(1.0),
        }
    }

    /// A database that is measured again stays where it was, without what it had; others stay as
    /// they are.
    #[test]
    fn a_database_is_replaced_whole() {
        let earlier = vec![cell("a", "1"), cell("a", "2"), cell("b", "1")];
        let cells = replaced(
            earlier,
            vec![cell("c", "1"), cell("a", "3"), cell("a", "4")],
        );
        let names: Vec<_> = cells
            .iter()
            .map(|cell| (&*cell.database, &*cell.subject))
            .collect();
        assert_eq!(names, [("a", "3"), ("a", "4"), ("b", "1"), ("c", "1")]);
    }
}
