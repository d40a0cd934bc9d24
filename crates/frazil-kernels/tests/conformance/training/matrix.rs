//! Matrices that are packed where they lie, and turned.

use frazil_kernels::Isa;
use frazil_kernels::gemm::f32::{Matrix, pack, pack_matrix, packed_len, transpose_f32};
use frazil_kernels::gemm::{Columns, Orientation};
use frazil_kernels::par::Pool;

use super::dense;
use crate::guard::filled;
use crate::{Row, Timed, Worst, numbers, pool};

pub fn rows() -> Vec<Row> {
    vec![
        Row {
            kernel: "pack [k, n]",
            tolerance: 0.0,
            check: |isa| packed(isa, Orientation::Kn),
            speed: Some(|isa| pack_speed(isa, Orientation::Kn)),
        },
        Row {
            kernel: "pack [n, k]",
            tolerance: 0.0,
            check: |isa| packed(isa, Orientation::Nk),
            speed: Some(|isa| pack_speed(isa, Orientation::Nk)),
        },
        Row {
            kernel: "transpose",
            tolerance: 0.0,
            check: transposed,
            speed: Some(transpose_speed),
        },
    ]
}

/// The same as packing a matrix without gaps.
fn packed(isa: Isa, order: Orientation) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for k in [0usize, 1, 3, 4, 7, 16, 50] {
        for n in [0, 1, 15, 16, 17, 47, 48, 49, 96, 131] {
            let (rows, columns) = if order == Orientation::Kn { (k, n) } else { (n, k) };
            let ld = columns + 3;
            let x = numbers(1, (rows * ld).saturating_sub(3));
            let mut got = filled(f32::NAN, packed_len(isa, k, n));
            pack_matrix(&pool, isa, &Matrix { x: &x, ld, order }, [k, n], &mut got);
            let mut wanted = vec![f32::NAN; got.len()];
            let plain = match rows * columns {
                0 => vec![],
                _ => dense(&x, ld, rows, columns),
            };
            pack(isa, &[Columns { w: &plain, order, n }], k, &mut wanted);
            for (i, (&got, &wanted)) in got.iter().zip(&wanted).enumerate() {
                let off = if got == wanted { 0.0 } else { 1.0 };
                worst.note(off, || format!("{k} x {n}, {i}: {got} for {wanted}"));
            }
        }
    }
    worst
}

fn pack_speed(isa: Isa, order: Orientation) -> Timed {
    let (x, pool) = (numbers(1, 768 * 768), Pool::new(1));
    let mut packed = vec![0.0; packed_len(isa, 768, 768)];
    Timed {
        size: "768 x 768".into(),
        operations: 0.0,
        bytes: 8.0 * 768.0 * 768.0,
        run: Box::new(move || {
            pack_matrix(&pool, isa, &Matrix { x: &x, ld: 768, order }, [768, 768], &mut packed);
        }),
    }
}

fn transposed(isa: Isa) -> Worst {
    let (mut worst, pool) = (Worst::default(), pool());
    for rows in [1, 2, 7, 8, 15, 16, 17, 33, 70] {
        for columns in [1, 2, 3, 4, 5, 16, 31] {
            let (ld, out_ld) = (columns + 3, rows + 2);
            let x = numbers(1, (rows - 1) * ld + columns);
            let mut out = filled(f32::NAN, (columns - 1) * out_ld + rows);
            transpose_f32(&pool, isa, (&x, ld), [rows, columns], (&mut out, out_ld));
            for c in 0..columns {
                let row = &out[c * out_ld..];
                for (r, &got) in row.iter().enumerate().take(rows) {
                    let off = if got == x[r * ld + c] { 0.0 } else { 1.0 };
                    worst.note(off, || format!("{rows} x {columns}: {r}, {c}"));
                }
                let gap = row[rows..].iter().take(2);
                assert!(gap.take_while(|_| c + 1 < columns).all(|x| x.is_nan()));
            }
        }
    }
    worst
}

fn transpose_speed(isa: Isa) -> Timed {
    let (rows, columns) = (1024, 768);
    let (x, mut out) = (numbers(1, rows * columns), vec![0.0; columns * 1040]);
    let pool = Pool::new(1);
    Timed {
        size: "1024 x 768".into(),
        operations: 0.0,
        bytes: 8.0 * (rows * columns) as f64,
        run: Box::new(move || {
            transpose_f32(&pool, isa, (&x, columns), [rows, columns], (&mut out, 1040));
        }),
    }
}
