//! What graphs, MetaGraphs and SavedModels share as files: read as binary or text, whichever the
//! content is, and written complete or not at all.

use std::io;
use std::path::Path;

use bytes::Bytes;
use frazil_tensor::file::{self, AtomicFile};

use crate::decode::{self, plausible};
use crate::schema::Described;
use crate::sniff::{self, Content};
use crate::{Error, Result, pbtxt};

/// The largest binary message that protobuf, and so TensorFlow, will read.
const MAX_BINARY: usize = i32::MAX as usize;

/// Decodes binary or text, by content. `expected` is the message with its article.
pub(crate) fn decode<M: Described>(bytes: Bytes, expected: &'static str) -> Result<M> {
    // A small file can look like two kinds of message: the one that is asked for has the say.
    if plausible(&bytes, M::SCHEMA) {
        return decode::decode(bytes);
    }
    match sniff::of(&bytes) {
        // Some field that we do not know may hide the kind; if not, the decoder says where it
        // stops making sense.
        Content::Unknown => decode::decode(bytes),
        _ if sniff::is_text_of(&bytes, M::SCHEMA) => pbtxt::parse_bytes(&bytes),
        Content::Text => pbtxt::parse_bytes(&bytes),
        found => Err(Error::WrongContent { expected, found }),
    }
}

/// [`decode`] of a mapped file.
pub(crate) fn read<M: Described>(path: &Path, expected: &'static str) -> Result<M> {
    decode(file::map(path)?, expected).map_err(|error| error.in_file(path))
}

/// Writes the binary form. Maps are sorted: equal messages give equal files.
#[cfg(test)]
pub(crate) fn write<M: Described>(path: &Path, message: &M) -> Result<()> {
    check_size(message)?;
    Ok(file::write(path, &message.encode_to_vec())?)
}

/// Writes the binary form, given piece by piece by `fill`: for messages that hold weights.
pub(crate) fn write_pieces<M: Described>(
    path: &Path,
    message: &M,
    fill: impl FnOnce(&mut AtomicFile) -> io::Result<()>,
) -> Result<()> {
    check_size(message)?;
    let mut file = AtomicFile::create(path)?;
    fill(&mut file).map_err(|source| {
        let path = path.into();
        frazil_tensor::Error::Io { action: "write", path, source }
    })?;
    Ok(file.commit()?)
}

/// Whether a message is small enough to be read again.
fn check_size<M: Described>(message: &M) -> Result<()> {
    let size = message.encoded_len();
    if size > MAX_BINARY {
        return Err(Error::Oversized { message: M::SCHEMA.name, size });
    }
    Ok(())
}

/// Writes the text form.
pub(crate) fn write_text<M: Described>(path: &Path, message: &M) -> Result<()> {
    Ok(file::write(path, pbtxt::print(message).as_bytes())?)
}
