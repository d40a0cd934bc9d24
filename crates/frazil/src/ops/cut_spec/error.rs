//! The ways a cut can be written wrongly, each with where.

/// This module's result.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with `--input` and its relatives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A list, an item of a list or a name with nothing in it.
    #[error("`{flag}` has an empty item in `{text}`")]
    Empty {
        /// The option.
        flag: &'static str,
        /// Its text.
        text: String,
    },
    /// Brackets that do not match.
    #[error("`{flag}`: the brackets of `{text}` do not match")]
    Brackets {
        /// The option.
        flag: &'static str,
        /// Where.
        text: String,
    },
    /// Text that has no place in the grammar.
    #[error("`{flag}`: `{found}` has no meaning in `{item}`")]
    Unexpected {
        /// The option.
        flag: &'static str,
        /// The item.
        item: String,
        /// The part that does not belong.
        found: String,
    },
    /// A second shape, type or value.
    #[error("`{flag}`: `{item}` has more than one {what}")]
    Twice {
        /// The option.
        flag: &'static str,
        /// The item.
        item: String,
        /// Of what there are two.
        what: &'static str,
    },
    /// A port on both sides of a name.
    #[error("`{flag}`: `{item}` has a port before and behind the name")]
    BothPorts {
        /// The option.
        flag: &'static str,
        /// The item.
        item: String,
    },
    /// A shape that is none.
    #[error("`{flag}`: shape `{text}` cannot be parsed: `{dim}` {reason}")]
    Shape {
        /// The option.
        flag: &'static str,
        /// The shape.
        text: String,
        /// The extent.
        dim: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A type that is none.
    #[error("`{flag}`: `{found}` in `{item}` is no element type")]
    Type {
        /// The option.
        flag: &'static str,
        /// The item.
        item: String,
        /// What stands for a type.
        found: String,
    },
    /// An element that its type does not have.
    #[error("`{name}` is frozen to `{found}`, which is no {expected}")]
    Element {
        /// The input.
        name: String,
        /// The element.
        found: String,
        /// Its type.
        expected: &'static str,
    },
    /// More or fewer elements than the shape has.
    #[error("`{name}` is frozen to {found} element(s), its shape {shape} has {expected}")]
    ElementCount {
        /// The input.
        name: String,
        /// Its shape.
        shape: String,
        /// The elements that this makes.
        expected: usize,
        /// The elements that were given.
        found: usize,
    },
    /// A value for an input that has no fixed shape.
    #[error("`{name}` is frozen to a value, but its shape {shape} is dynamic")]
    FrozenDynamic {
        /// The input.
        name: String,
        /// Its shape.
        shape: String,
    },
    /// Two values for one input.
    #[error("`{name}` is frozen to `{first}` and to `{second}`")]
    TwoValues {
        /// The input.
        name: String,
        /// The value that was read first.
        first: String,
        /// The other one.
        second: String,
    },
    /// `--freeze_placeholder_with_value` without an arrow.
    #[error("`{flag}`: `{item}` is not `name->value`")]
    NotFrozen {
        /// The option.
        flag: &'static str,
        /// The item.
        item: String,
    },
    /// One input named twice.
    #[error("`{flag}` names `{name}` twice")]
    Duplicate {
        /// The option.
        flag: &'static str,
        /// The name.
        name: String,
    },
    /// Two options that say the same thing.
    #[error("shapes are given by `{first}` and by `{second}`")]
    Conflict {
        /// One option.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// Shapes that no names go with.
    #[error(
        "`--input_shape` has {shapes} shapes and there is no `--input` that names their inputs"
    )]
    NoNames {
        /// Number of shapes.
        shapes: usize,
    },
    /// Not one shape for each name.
    #[error("`--input` names {inputs} input(s), `--input_shape` has {shapes} shape(s)")]
    Count {
        /// Number of names.
        inputs: usize,
        /// Number of shapes.
        shapes: usize,
    },
}

impl Error {
    /// What to write instead.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Empty { .. } => "separate items by single commas: `--input a,b`".into(),
            Self::Brackets { .. } => {
                "quote the argument for the shell: `--input \"ids[1 128],mask[1 128]\"`".into()
            }
            Self::Unexpected { .. } | Self::Twice { .. } => {
                "an item is `name`, `name:port` or `port:name`, then `[shape]`, `{type}` and \
                 `->value` where wanted: `ids:0[1 128]{i32}`"
                    .into()
            }
            Self::BothPorts { .. } => {
                "`name:1` is output 1 of the node, `1:name` its input 1; give one of them".into()
            }
            Self::Shape { .. } => {
                "extents are positive numbers, `?` or `-1` for dynamic, `1..8`, `1..` or `..8` for \
                 bounds, separated by spaces or commas: `[1..8 128]`"
                    .into()
            }
            Self::Type { .. } => {
                "the types are f64, f32, f16, i64, i32, i16, i8, u64, u32, u16, u8 and boolean"
                    .into()
            }
            Self::Element { expected: "boolean", .. } => "write `True` or `False`".into(),
            Self::Element { .. } => return None,
            Self::ElementCount { .. } => {
                "write as many elements as the shape has: `x[2 2]->[1 2 3 4]`".into()
            }
            Self::FrozenDynamic { .. } => "give the shape in numbers, or no value".into(),
            Self::TwoValues { .. } => "give one value for each input".into(),
            Self::NotFrozen { .. } => {
                "write `--freeze_placeholder_with_value \"name1->value1,name2->value2\"`".into()
            }
            Self::Duplicate { .. } => "name each input once".into(),
            Self::Conflict { second: "--batch", .. } => {
                "leave `--batch` out and write the batch into the shapes, or the other way round"
                    .into()
            }
            Self::Conflict { .. } => "give them in one place".into(),
            Self::NoNames { .. } => {
                "name the inputs in the same order: `--input ids,mask --input_shape \
                 [1,128],[1,128]`"
                    .into()
            }
            Self::Count { .. } => "give one shape for each input, in the same order".into(),
        })
    }
}
