//! The graph that a configuration gives is raised in full, whatever the head and the sizes, and
//! lowered and raised again it is the same.

use frazil_bert::build::{Options, build};
use frazil_bert::config::Formulas;
use frazil_bert::{BertConfig, Head};
use frazil_graph::dump;
use frazil_graph::op::GeluForm;
use frazil_graph::pass::{Fusions, fold, fuse, lower};

#[test]
fn built_graphs_are_raised_in_full() {
    let config = BertConfig {
        hidden_size: 64,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        intermediate_size: 256,
        max_position_embeddings: 128,
        type_vocab_size: 2,
        ..BertConfig::new(838)
    };
    // The linear layers are six per layer of the encoder, the pooler, and those of the head.
    for (head, extra, linear) in [
        (Head::Encoder, 0, 19),
        (Head::Pretraining, 1, 22),
        (Head::Classifier, 0, 20),
        (Head::Squad, 0, 19),
    ] {
        for batch in [None, Some(3)] {
            for (seq, gelu) in [(None, GeluForm::Tanh), (Some(7), GeluForm::Erf)] {
                let pooler = head != Head::Squad;
                let formulas = Formulas { gelu, ..Formulas::default() };
                let options = Options { batch, seq, formulas, pooler, ..Options::default() };
                let mut graph = build(&config, head, &options).unwrap();
                fold(&mut graph).unwrap();
                let report = fuse(&mut graph, &Fusions::all()).unwrap();
                let found = ["embed", "layer_norm", "gelu", "linear", "attention"]
                    .map(|rule| report.count(rule));
                let at = format!("{head:?}, batch {batch:?}, seq {seq:?}");
                assert_eq!(found, [1, 7 + extra, 3 + extra, linear, 3], "{at}: {report:?}");
                assert_eq!(report.missed, [], "{at}");
                let before = dump(&graph);
                lower(&mut graph, &|_| false).unwrap();
                fuse(&mut graph, &Fusions::all()).unwrap();
                assert!(dump(&graph) == before, "{at}");
            }
        }
    }
}
