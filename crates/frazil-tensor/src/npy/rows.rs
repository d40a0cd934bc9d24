//! An `.npy` that is written row by row, by who does not know yet how many there will be.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use super::header::{self, Header};
use crate::file::AtomicFile;
use crate::{DType, Error, Result, Shape};

/// Writes `float32 [rows, width]`.
///
/// The header is written last, over a first one of the same length: NumPy's headers end in blanks
/// up to a multiple of 64 bytes, which leaves room for a number of rows that has more digits.
pub struct NpyRows {
    file: AtomicFile,
    width: usize,
    rows: usize,
    header: usize,
}

impl NpyRows {
    /// Starts a file of rows of so many numbers.
    pub fn create(path: impl AsRef<Path>, width: usize) -> Result<Self> {
        let mut file = AtomicFile::create(path)?;
        // As long as any can be.
        let header = encode(usize::MAX, width).len();
        file.write_all(&vec![b' '; header]).map_err(|e| Error::io("write", file.path(), e))?;
        Ok(Self { file, width, rows: 0, header })
    }

    /// Adds a row; one of another width is an error.
    pub fn add(&mut self, row: &[f32]) -> Result<()> {
        if row.len() != self.width {
            let (expected, found) = (self.width, row.len());
            let reason = format!("its rows have {expected} numbers, and one has {found}");
            let path = self.file.path().to_path_buf();
            return Err(Error::Malformed { path, format: "npy", reason });
        }
        let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.file.write_all(&bytes).map_err(|e| Error::io("write", self.file.path(), e))?;
        self.rows += 1;
        Ok(())
    }

    /// Fills in the number of rows and gives the file its name.
    pub fn finish(mut self) -> Result<()> {
        let header = padded(encode(self.rows, self.width), self.header);
        let done = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&header));
        done.map_err(|e| Error::io("write", self.file.path(), e))?;
        self.file.commit()
    }
}

fn encode(rows: usize, width: usize) -> Vec<u8> {
    let descr = header::descr(DType::F32).expect("NumPy has float32");
    Header::encode(&descr, &Shape::from([rows, width]))
}

/// The same header with blanks before its end, and their number in its length.
fn padded(mut header: Vec<u8>, length: usize) -> Vec<u8> {
    let end = header.len() - 1;
    let blanks = length.saturating_sub(header.len());
    header.splice(end..end, std::iter::repeat_n(b' ', blanks));
    let text = u16::try_from(length - 10).expect("a header of two extents is short");
    header[8..10].copy_from_slice(&text.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for rows in [0, 1, 2000] {
            let mut file = NpyRows::create(&path, 3).unwrap();
            for i in 0..rows {
                file.add(&[i as f32, 0.5, -1.0]).unwrap();
            }
            assert!(file.add(&[1.0]).is_err());
            file.finish().unwrap();
            let read = crate::npy::open(&path).unwrap();
            assert_eq!(**read.shape(), [rows, 3]);
            let values = read.values::<f32>().unwrap();
            assert!(values.chunks(3).enumerate().all(|(i, row)| row == [i as f32, 0.5, -1.0]));
            let length = std::fs::metadata(&path).unwrap().len();
            assert_eq!((length - rows as u64 * 12) % 64, 0);
        }
    }
}
