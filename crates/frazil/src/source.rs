//! Opens whatever the user has.
