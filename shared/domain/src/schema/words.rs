//! What is wrong, in our words: the schema's bounds and names may stand in them, values of the
//! input never.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

use crate::{limits, tool};

pub(super) fn of(kind: &ValidationErrorKind) -> String {
    use ValidationErrorKind as Kind;
    let words = match kind {
        Kind::Type { kind: TypeKind::Single(name) } => {
            format!("must be {}", article(name.as_str()))
        }
        Kind::Type { kind: TypeKind::Multiple(names) } => {
            let names: Vec<&str> = names.iter().map(jsonschema::JsonType::as_str).collect();
            format!("must be one of {}", names.join(", "))
        }
        Kind::Required { property } => format!("lacks the required member {property}"),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("has members that the tool does not know: {}", unexpected.join(", "))
        }
        Kind::AdditionalItems { .. } | Kind::UnevaluatedItems { .. } => {
            "has more items than the tool knows".to_owned()
        }
        Kind::Enum { options } => format!("must be one of {}", list(options)),
        Kind::Constant { expected_value } => format!("must be {expected_value}"),
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("must have at least {limit} characters"),
        Kind::MaxLength { limit } => format!("must have at most {limit} characters"),
        Kind::MinItems { limit } => format!("must have at least {limit} items"),
        Kind::MaxItems { limit } => format!("must have at most {limit} items"),
        Kind::MinProperties { limit } => format!("must have at least {limit} members"),
        Kind::MaxProperties { limit } => format!("must have at most {limit} members"),
        Kind::Pattern { pattern } => format!("must match the pattern {pattern}"),
        Kind::PropertyNames { .. } => "has a member whose name is not allowed".to_owned(),
        Kind::UniqueItems => "must not hold an item twice".to_owned(),
        Kind::Contains => "lacks an item of the required kind".to_owned(),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            "fits none of the shapes that the tool takes".to_owned()
        }
        Kind::OneOfMultipleValid { .. } => {
            "fits more than one of shapes that exclude each other".to_owned()
        }
        Kind::Not { .. } => "has a shape that the tool excludes".to_owned(),
        Kind::FalseSchema => "is not allowed here".to_owned(),
        other => format!("does not fit \"{}\" of the schema", other.keyword()),
    };
    tool::escaped(&words, limits::VIOLATION_CHARS.size())
}

fn article(name: &str) -> String {
    match name {
        "null" => "null".to_owned(),
        "array" | "integer" | "object" => format!("an {name}"),
        _ => format!("a {name}"),
    }
}

fn list(options: &Value) -> String {
    let Value::Array(options) = options else { return options.to_string() };
    options.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}
