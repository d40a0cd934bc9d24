//! A model once more, without a search: what every operation is, and all the numbers of its bytes.
//!
//! A recipe is YAML. What people read in it is text; long lists of numbers are hexadecimal, eight
//! digits for each float32, so that not a bit is lost on the way. It needs no data to be followed,
//! and belongs to one model: [`Recipe::model`] tells whether another one has the same contents.

use std::collections::BTreeMap;
use std::path::Path;

use frazil_graph::op::Steps;
use frazil_graph::pass::quantize::{AttentionGrid, Grids, LinearGrid};
use serde::{Deserialize, Serialize};

use crate::choice::{Choice, Configuration};
use crate::error::{Error, Result};

/// What is written here.
const VERSION: u32 = 1;
/// No recipe is longer: those of the largest BERTs are a tenth of it.
const LONGEST: usize = 64 << 20;
/// How a recipe is told from a configuration.
const KEY: &str = "frazil_recipe";

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recipe {
    /// What the model's contents are known by.
    pub model: String,
    /// What the model is for, if somebody said so.
    pub task: Option<String>,
    /// Where the numbers come from, in words.
    pub made_from: Vec<String>,
    /// What every operation is.
    pub configuration: Configuration,
    /// The numbers.
    pub grids: Grids,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    frazil_recipe: u32,
    model: String,
    task: Option<String>,
    made_from: Vec<String>,
    bias_correction: bool,
    migration: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    largest: Option<u8>,
    linears: BTreeMap<String, Linear>,
    attentions: BTreeMap<String, Attention>,
    tables: BTreeMap<String, Choice>,
    f32: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Linear {
    choice: Choice,
    /// Each row has its own if there is none.
    input: Option<ScaleAndZero>,
    columns: Option<String>,
    scales: String,
    correction: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attention {
    choice: Choice,
    q: ScaleAndZero,
    k: f32,
    v: f32,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaleAndZero {
    scale: f32,
    zero: u8,
}

impl Recipe {
    /// Is this text a recipe, good or bad, and no configuration?
    pub fn is_one(text: &str) -> bool {
        let key = |line: &str| line.strip_prefix(KEY).is_some_and(|rest| rest.starts_with(':'));
        text.lines().any(key)
    }

    /// Reads a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
        Self::parse(&text).map_err(|e| e.in_file(path))
    }

    /// Reads text.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > LONGEST {
            return Err(Error::TooLong { found: text.len(), most: LONGEST });
        }
        let wrong = |error: serde_saphyr::Error| {
            let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
            let reason = error.to_string();
            Error::Yaml { line, column, reason: reason.lines().next().unwrap_or_default().into() }
        };
        let options = || serde_saphyr::options! { with_snippet: false };
        #[derive(Deserialize)]
        struct Head {
            frazil_recipe: u32,
        }
        let head: Head = serde_saphyr::from_str_with_options(text, options()).map_err(wrong)?;
        if head.frazil_recipe != VERSION {
            return Err(Error::RecipeVersion { found: head.frazil_recipe, known: VERSION });
        }
        let read: Text = serde_saphyr::from_str_with_options(text, options()).map_err(wrong)?;
        Self::from_text(read)
    }

    fn from_text(read: Text) -> Result<Self> {
        let Text { model, task, made_from, bias_correction, migration, largest, .. } = read;
        let mut ops: BTreeMap<String, Choice> =
            read.f32.into_iter().map(|name| (name, Choice::F32)).collect();
        let mut grids = Grids::default();
        for (name, linear) in read.linears {
            let list = |what, text: &Option<String>| {
                text.as_ref().map(|text| numbers(&name, what, text)).transpose()
            };
            let input = match linear.input {
                Some(ScaleAndZero { scale, zero }) => Steps::Tensor { scale, zero },
                None => Steps::Rows,
            };
            let grid = LinearGrid {
                input,
                columns: list("columns", &linear.columns)?,
                scales: numbers(&name, "scales", &linear.scales)?,
                correction: list("correction", &linear.correction)?,
            };
            grids.linears.insert(name.clone(), grid);
            ops.insert(name, linear.choice);
        }
        for (name, Attention { choice, q, k, v }) in read.attentions {
            let q = (q.scale, q.zero);
            grids.attentions.insert(name.clone(), AttentionGrid { q, k, v });
            ops.insert(name, choice);
        }
        grids.tables.extend(read.tables.keys().cloned());
        ops.extend(read.tables);
        let configuration = Configuration { ops, bias_correction, migration, largest };
        Ok(Self { model, task, made_from, configuration, grids })
    }

    /// As text.
    ///
    /// # Errors
    /// If a number is none: what is written can be read.
    pub fn to_yaml(&self) -> Result<String> {
        let choice =
            |name: &String| self.configuration.ops.get(name).copied().unwrap_or(Choice::INT8);
        let linear = |(name, grid): (&String, &LinearGrid)| {
            let input = match grid.input {
                Steps::Tensor { scale, zero } => Some(ScaleAndZero { scale, zero }),
                _ => None,
            };
            let text = Linear {
                choice: choice(name),
                input,
                columns: grid.columns.as_deref().map(digits),
                scales: digits(&grid.scales),
                correction: grid.correction.as_deref().map(digits),
            };
            (name.clone(), text)
        };
        let attention = |(name, grid): (&String, &AttentionGrid)| {
            let q = ScaleAndZero { scale: grid.q.0, zero: grid.q.1 };
            (name.clone(), Attention { choice: choice(name), q, k: grid.k, v: grid.v })
        };
        let plain = self.configuration.ops.iter().filter(|(_, choice)| !choice.is_int8());
        let text = Text {
            frazil_recipe: VERSION,
            model: self.model.clone(),
            task: self.task.clone(),
            made_from: self.made_from.clone(),
            bias_correction: self.configuration.bias_correction,
            migration: self.configuration.migration,
            largest: self.configuration.largest,
            linears: self.grids.linears.iter().map(linear).collect(),
            attentions: self.grids.attentions.iter().map(attention).collect(),
            tables: self.grids.tables.iter().map(|name| (name.clone(), choice(name))).collect(),
            f32: plain.map(|(name, _)| name.clone()).collect(),
        };
        let unwritable = |reason| Error::Unwritable { what: "the recipe", reason };
        let yaml = serde_saphyr::to_string(&text).map_err(|e| unwritable(e.to_string()))?;
        // A float that loses a bit in its decimal digits would make another model.
        match Self::parse(&yaml)? == *self {
            true => Ok(yaml),
            false => Err(unwritable("it would read as another one".into())),
        }
    }

    /// Writes a file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(frazil_tensor::file::write(path.as_ref(), self.to_yaml()?.as_bytes())?)
    }
}

/// Eight hexadecimal digits for each number.
fn digits(numbers: &[f32]) -> String {
    numbers.iter().map(|number| format!("{:08x}", number.to_bits())).collect()
}

fn numbers(op: &str, what: &str, text: &str) -> Result<Vec<f32>> {
    let wrong = || Error::Digits { op: op.into(), what: what.into() };
    if !text.len().is_multiple_of(8) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let number = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok().map(f32::from_bits)
    };
    text.as_bytes().chunks(8).map(|digits| number(digits).ok_or_else(wrong)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::{Activation, Algorithm};

    fn recipe() -> Recipe {
        let mut ops = BTreeMap::new();
        let dynamic = Choice { activation: Activation::Dynamic, ..Choice::INT8 };
        let mse = Activation::Static(Algorithm::Percentile(99.99));
        ops.insert("layer_0/MatMul".into(), Choice { activation: mse, ..Choice::INT8 });
        ops.insert("layer_1/MatMul".into(), dynamic);
        ops.insert("layer_1/scores".into(), Choice::INT8);
        ops.insert("words".into(), Choice::INT8);
        ops.insert("head: 'quoted'".into(), Choice::F32);
        let linear = LinearGrid {
            input: Steps::Tensor { scale: 0.1 + 1e-9, zero: 117 },
            columns: Some(vec![1.0 / 3.0, 2.0]),
            scales: vec![f32::MIN_POSITIVE, 1e30, 0.1],
            correction: Some(vec![-0.0, 1.5e-7, -3.25]),
        };
        let rows =
            LinearGrid { input: Steps::Rows, columns: None, scales: vec![0.7], correction: None };
        let mut grids = Grids::default();
        grids.linears.insert("layer_0/MatMul".into(), linear);
        grids.linears.insert("layer_1/MatMul".into(), rows);
        let attention = AttentionGrid { q: (0.013_456_79, 3), k: 1.0 / 7.0, v: 3e-5 };
        grids.attentions.insert("layer_1/scores".into(), attention);
        grids.tables.insert("words".into());
        let configuration =
            Configuration { ops, bias_correction: true, migration: Some(0.55), largest: Some(63) };
        let made_from = vec!["100 windows of `a: b.json`".into()];
        Recipe { model: "00e7".into(), task: Some("SQuAD".into()), made_from, configuration, grids }
    }

    #[test]
    fn not_a_bit_is_lost() {
        let recipe = recipe();
        let yaml = recipe.to_yaml().unwrap();
        assert!(Recipe::is_one(&yaml) && !Recipe::is_one("model:\n  name: frazil_recipe:\n"));
        let again = Recipe::parse(&yaml).unwrap();
        assert_eq!(again, recipe);
        assert_eq!(again.to_yaml().unwrap(), yaml);
        let zero = again.grids.linears["layer_0/MatMul"].correction.as_ref().unwrap()[0];
        assert!(zero.is_sign_negative());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let yaml = recipe().to_yaml().unwrap();
        let wrong = |from: &str, to: &str| {
            let text = yaml.replace(from, to);
            assert_ne!(text, yaml, "{from}");
            Recipe::parse(&text).unwrap_err().to_string()
        };
        assert!(wrong("frazil_recipe: 1", "frazil_recipe: 9").contains("version 9"));
        assert!(wrong("bias_correction", "bias_corection").contains("bias_corection"));
        assert!(wrong("zero: 117", "zero: 700").starts_with("line "));
        let digits = wrong("3f333333", "3f33333g");
        assert_eq!(
            digits,
            "`scales` of `layer_1/MatMul` are not eight hexadecimal digits for each number"
        );
        assert!(Recipe::parse("frazil_recipe: 1\n").unwrap_err().to_string().contains("line"));
    }
}
