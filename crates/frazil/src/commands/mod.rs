//! The commands: each parses its arguments, calls one of `frazil::ops`, and prints the report.
