//! What is damaged, or comes to no number: what is said, and what is left.

use frazil::tensor::Tensor;
use frazil::tf::bundle::{BundleWriter, WriteOptions, data_path};

use super::*;

fn fails(options: &classifier::Options) -> (String, String) {
    let error = classifier::train(options, &mut |_| Ok(Go::On)).unwrap_err();
    let hint = error.hint().unwrap_or_default();
    (format!("{:#}", anyhow::Error::from(error)), hint)
}

/// A rate with which weights run over, although the loss before was a number.
#[test]
fn weights_that_are_no_numbers_are_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    options.schedule.learning_rate = 3e38;
    (options.schedule.save_every, options.schedule.warmup_proportion) = (1, 0.0);
    let (said, hint) = fails(&options);
    assert!(said.contains("the weight `") && said.contains("` of step 1 is "), "{said}");
    assert!(hint.ends_with("/model.ckpt-0`"), "{hint}");
    let state = CheckpointState::read(folder.path()).unwrap().unwrap();
    assert!(state.model_checkpoint_path.ends_with("model.ckpt-0"));
    assert!(folder.path().join("report.html").is_file());
    options.schedule.learning_rate = 1e39;
    assert!(fails(&options).0.contains("a learning rate of 1"));
}

/// What a checkpoint has that no training can begin with is named.
#[test]
fn weights_to_begin_with_are_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(&folder.path().join("out")) else { return };
    let good = open_weights(options.model.init_checkpoint.unwrap(), &Default::default()).unwrap();
    let prefix = folder.path().join("model.ckpt");
    let mut writer = BundleWriter::create(&prefix, WriteOptions::default()).unwrap();
    for info in good.infos() {
        let mut tensor = good.read(&info.name).unwrap();
        if info.name == "bert/pooler/dense/bias" {
            let mut values = tensor.values::<f32>().unwrap().to_vec();
            values[3] = f32::NAN;
            tensor = Tensor::from_vec([values.len()], values).unwrap();
        }
        writer.add(&info.name, &tensor).unwrap();
    }
    writer.finish().unwrap();
    options.model.init_checkpoint = Some(prefix);
    let (said, hint) = fails(&options);
    assert!(said.contains("`bert/pooler/dense/bias` of the checkpoint has NaN"), "{said}");
    assert_eq!(hint, "begin with another checkpoint");
}

/// Whatever is damaged of the newest checkpoint, the way back is told.
#[test]
fn a_damaged_checkpoint_is_named_with_the_way_back() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut options) = mrpc(folder.path()) else { return };
    options.schedule.epochs = 1.0;
    let newest = classifier::train(&options, &mut |_| Ok(Go::On)).unwrap().trained.checkpoint;
    options.schedule.epochs = 2.0;
    let data = data_path(&newest, 0, 1);
    let index = frazil::tf::bundle::index_path(&newest);
    type Damage<'p> = (&'p PathBuf, fn(&mut Vec<u8>));
    let damages: [Damage<'_>; 3] = [
        (&data, |bytes| bytes[1000] ^= 1),
        (&data, |bytes| bytes.truncate(bytes.len() / 2)),
        (&index, |bytes| bytes.truncate(20)),
    ];
    for (path, damage) in damages {
        let whole = std::fs::read(path).unwrap();
        let mut bytes = whole.clone();
        damage(&mut bytes);
        std::fs::write(path, bytes).unwrap();
        let (said, hint) = fails(&options);
        let expected = format!("the run cannot go on from `{}`", newest.display());
        assert!(said.starts_with(&expected), "{said}");
        assert!(
            hint.contains("name the one before it in the folder's file `checkpoint`"),
            "{hint}"
        );
        std::fs::write(path, whole).unwrap();
    }
    classifier::train(&options, &mut |_| Ok(Go::On)).unwrap();
    std::fs::write(folder.path().join("checkpoint"), "").unwrap();
    assert!(fails(&options).1.contains("model_checkpoint_path: "));
}
