//! What makes a model a BERT: its configuration, its variables' names and shapes, its heads.
