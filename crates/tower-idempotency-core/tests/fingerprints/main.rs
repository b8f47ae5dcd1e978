//! What tells two requests apart, whatever they hold.

mod arrivals;
mod fields;
mod preimages;
