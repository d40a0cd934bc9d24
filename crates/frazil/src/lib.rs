//! frazil takes a BERT that was trained with TensorFlow 1 from checkpoint to production,
//! without TensorFlow.
