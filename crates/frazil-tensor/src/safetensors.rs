//! `.safetensors` files.
