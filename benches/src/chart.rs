//! The chart that the documents show.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::cell::Cell;
use crate::load::Case;

/// The panels: a case by so many clients.
const PANELS: [(Case, usize); 4] = [
    (Case::NewKey, 1),
    (Case::NewKey, 16),
    (Case::Replay, 1),
    (Case::Replay, 16),
];

/// Where bars are cut off: a response from memory is many times as fast as one from a database.
const HIGHEST: f64 = 1.35;

/// How much room the databases' names have below the axis, in its units.
const NAMES: f64 = 0.22;

const COLOURS: [RGBColor; 6] = [
    RGBColor(0x33, 0x66, 0xcc),
    RGBColor(0x66, 0xaa, 0x55),
    RGBColor(0x99, 0xcc, 0x88),
    RGBColor(0xdd, 0x88, 0x33),
    RGBColor(0xcc, 0x55, 0x55),
    RGBColor(0x88, 0x88, 0x88),
];

/// Draws how much of the bare handler's rate is left, for bodies of 1 KiB.
pub(crate) fn draw(cells: &[Cell], path: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (960, 720)).into_drawing_area();
    root.fill(&WHITE)?;
    let areas = root.split_evenly((2, 2));
    for ((case, clients), area) in PANELS.iter().zip(&areas) {
        let shown: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.case == *case && cell.clients == *clients && cell.bytes == 1024)
            .filter(|cell| !cell.subject.starts_with("bare"))
            .collect();
        let mut databases: Vec<&str> = shown.iter().map(|cell| &*cell.database).collect();
        databases.dedup();
        let mut subjects: Vec<&str> = Vec::new();
        for cell in &shown {
            if !subjects.contains(&&*cell.subject) {
                subjects.push(&cell.subject);
            }
        }
        let beside = match case {
            Case::NewKey => "part of a bare handler's rate",
            Case::Replay | Case::InProgress => "part of a bare read's rate",
        };
        let plural = if *clients == 1 { "" } else { "s" };
        let title = format!("{}, {clients} client{plural}, 1 KiB", case.title());
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 16))
            .margin(8)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..databases.len() as f64, -NAMES..HIGHEST * 1.65)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .y_labels(6)
            .y_desc(beside)
            .draw()?;
        let width = 0.9 / subjects.len().max(1) as f64;
        let left = |cell: &Cell, number: usize| {
            let place = databases.iter().position(|name| *name == cell.database);
            place.unwrap_or_default() as f64 + 0.05 + number as f64 * width
        };
        for (number, subject) in subjects.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let bars = shown
                .iter()
                .filter(|cell| cell.subject == *subject)
                .map(|cell| {
                    let left = left(cell, number);
                    let corners = [
                        (left, 0.0),
                        (left + width * 0.9, cell.ratio.median.min(HIGHEST)),
                    ];
                    Rectangle::new(corners, colour.filled())
                });
            chart
                .draw_series(bars)?
                .label(*subject)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 4), (x + 10, y + 4)], colour.filled())
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .label_font(("sans-serif", 11))
            .background_style(WHITE.mix(0.8))
            .draw()?;
        // What is cut off says how high it is.
        let above = Pos::new(HPos::Center, VPos::Bottom);
        let small = ("sans-serif", 10).into_font().color(&BLACK).pos(above);
        let cut = shown.iter().filter(|cell| cell.ratio.median > HIGHEST);
        let heights = cut.map(|cell| {
            let number = subjects.iter().position(|name| *name == cell.subject);
            let at = (
                left(cell, number.unwrap_or_default()) + width * 0.45,
                HIGHEST + 0.01,
            );
            Text::new(format!("{:.1}", cell.ratio.median), at, small.clone())
        });
        chart.draw_series(heights)?;
        let middle = Pos::new(HPos::Center, VPos::Top);
        let style = ("sans-serif", 12).into_font().color(&BLACK).pos(middle);
        // One line for each part of a name, below the axis.
        let lines = databases.iter().enumerate().flat_map(|(place, name)| {
            let parts = name.split(", ").enumerate();
            parts.map(move |(line, part)| (place as f64 + 0.5, line as f64, part))
        });
        let names = lines.map(|(place, line, part)| {
            let at = (place, -NAMES * (0.15 + 0.4 * line));
            Text::new(part.to_owned(), at, style.clone())
        });
        chart.draw_series(names)?;
    }
    root.present()?;
    Ok(())
}
