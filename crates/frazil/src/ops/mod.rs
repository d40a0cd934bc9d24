//! What frazil does, one module for each verb: options in, report out. Nothing here prints.

pub mod inspect;
pub mod verify_weights;
