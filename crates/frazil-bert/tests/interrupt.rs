//! Reading text and making instances end soon after an interruption, though nothing of it is written to a
//! file. In a process of its own, since it cannot be taken back.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;

use frazil_bert::pretrain_data::{Corpus, Options, Order, ReadOptions, create};
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil_tensor::file::interrupt;

#[test]
fn work_in_memory_hears_of_an_interruption() {
    let pieces = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "."].map(str::to_owned);
    let vocabulary = Vocabulary::from_tokens(pieces).unwrap();
    let tokenizer = Tokenizer::new(Arc::new(vocabulary), Casing::Lower).unwrap();
    let text = b"a b .\nb a .\n\nb .\na .\n";
    let read = || Corpus::of_text(text, &tokenizer, &ReadOptions::default());
    let corpus = read().unwrap();
    let make =
        |order| create(&corpus, &tokenizer, &Options { order, ..Options::default() }, |_, _| {});
    let orders = [Order::Original, Order::Parallel { threads: 2 }];
    assert!(orders.iter().all(|order| make(*order).is_ok()));
    interrupt();
    assert_eq!(read().unwrap_err().to_string(), "interrupted");
    for order in orders {
        assert_eq!(make(order).unwrap_err().to_string(), "interrupted");
    }
}
