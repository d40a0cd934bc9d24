//! Text to binary. Each value is appended to the output as soon as it is read; a message's
//! length is put before it when its end is met.

use super::lex::{Lexer, Token, unescape};
use super::number;
use crate::schema::{Enum, Field, Kind, Message, Wire};
use crate::wire::{MAX_DEPTH, too_deep};
use crate::{Error, Result, nearest};

/// The binary form of the message that `text` describes.
pub(super) fn to_binary(text: &[u8], schema: &'static Message) -> Result<Vec<u8>> {
    let mut parser = Parser { lexer: Lexer::new(text), out: Vec::new() };
    parser.message(schema, None, 0)?;
    Ok(parser.out)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    out: Vec<u8>,
}

impl<'a> Parser<'a> {
    /// Fields up to the closing symbol, or to the end of the text.
    fn message(&mut self, schema: &'static Message, close: Option<u8>, depth: usize) -> Result<()> {
        let mut seen = 0u128;
        loop {
            let (token, at) = self.lexer.next()?;
            let name = match token {
                Token::End if close.is_none() => return Ok(()),
                Token::Symbol(symbol) if Some(symbol) == close => return Ok(()),
                Token::Word(name) => name,
                Token::Symbol(b'[') => {
                    return Err(self.lexer.error(at, "extensions are not supported"));
                }
                other => {
                    let what = match close {
                        Some(close) => format!("a field of {} or `{}`", schema.name, close as char),
                        None => format!("a field of {}", schema.name),
                    };
                    return Err(self.expected(&what, other, at));
                }
            };
            let Some((index, field)) = schema.by_name(name) else {
                let near = nearest(name, schema.fields.iter().map(|field| field.name));
                return Err(self.unknown(
                    at,
                    format!("{} has no field `{name}`", schema.name),
                    near,
                ));
            };
            self.check_single(schema, field, seen, index, at)?;
            seen |= 1 << index;
            self.field(field, depth)?;
            if matches!(self.lexer.peek()?, Token::Symbol(b',' | b';')) {
                self.lexer.next()?;
            }
        }
    }

    /// What is not repeated comes once, and so does one member of a oneof.
    fn check_single(
        &self,
        schema: &'static Message,
        field: &Field,
        seen: u128,
        index: usize,
        at: usize,
    ) -> Result<()> {
        if field.repeated {
            return Ok(());
        }
        if seen & (1 << index) != 0 {
            let reason = format!("field `{}` of {} is given twice", field.name, schema.name);
            return Err(self.lexer.error(at, reason));
        }
        let Some(oneof) = field.oneof else { return Ok(()) };
        let other =
            schema.fields.iter().enumerate().find(|&(other, candidate)| {
                candidate.oneof == Some(oneof) && seen & (1 << other) != 0
            });
        match other {
            None => Ok(()),
            Some((_, other)) => {
                let reason = format!(
                    "`{}` and `{}` are both given, but {} has only one `{oneof}`",
                    other.name, field.name, schema.name
                );
                Err(self.lexer.error(at, reason))
            }
        }
    }

    /// What follows a field's name.
    fn field(&mut self, field: &'static Field, depth: usize) -> Result<()> {
        let nests = matches!(field.kind, Kind::Message(_) | Kind::Map(_));
        let (mut token, mut at) = self.lexer.next()?;
        if token == Token::Symbol(b':') {
            (token, at) = self.lexer.next()?;
        } else if !nests {
            return Err(self.expected(&format!("`:` after `{}`", field.name), token, at));
        }
        if token != Token::Symbol(b'[') {
            return self.value(field, token, at, depth);
        }
        if !field.repeated {
            let reason = format!("`{}` holds one value, not a list", field.name);
            return Err(self.lexer.error(at, reason));
        }
        (token, at) = self.lexer.next()?;
        if token == Token::Symbol(b']') {
            return Ok(());
        }
        loop {
            self.value(field, token, at, depth)?;
            match self.lexer.next()? {
                (Token::Symbol(b','), _) => (token, at) = self.lexer.next()?,
                (Token::Symbol(b']'), _) => return Ok(()),
                (other, at) => return Err(self.expected("`,` or `]`", other, at)),
            }
        }
    }

    /// One value, whose first token is at hand.
    fn value(
        &mut self,
        field: &'static Field,
        token: Token<'a>,
        at: usize,
        depth: usize,
    ) -> Result<()> {
        let wire = match field.kind.wire() {
            Wire::Varint => 0,
            Wire::Eight => 1,
            Wire::Length => 2,
            Wire::Four => 5,
        };
        self.varint(u64::from(field.number << 3 | wire));
        match field.kind {
            Kind::Message(inner) | Kind::Map(inner) => {
                let close = match token {
                    Token::Symbol(b'{') => b'}',
                    Token::Symbol(b'<') => b'>',
                    other => {
                        return Err(self.expected(
                            &format!("`{{` after `{}`", field.name),
                            other,
                            at,
                        ));
                    }
                };
                if depth == MAX_DEPTH {
                    return Err(self.lexer.error(at, too_deep()));
                }
                let start = self.out.len();
                self.message(inner, Some(close), depth + 1)?;
                self.put_length(start);
                Ok(())
            }
            Kind::String | Kind::Bytes => self.string(field, token, at),
            Kind::Float | Kind::Double => self.float(field, token, at),
            Kind::Bool => self.boolean(field, token, at),
            Kind::Enum(names) => self.enumeration(field, names, token, at),
            _ => self.integer(field, token, at),
        }
    }

    fn string(&mut self, field: &Field, mut token: Token<'a>, at: usize) -> Result<()> {
        let start = self.out.len();
        let mut quote = at;
        loop {
            let Token::Quoted(quoted) = token else {
                return Err(self.expected(&format!("a string for `{}`", field.name), token, at));
            };
            unescape(quoted, &mut self.out)
                .map_err(|(offset, reason)| self.lexer.error(quote + 1 + offset, reason))?;
            // Strings side by side are one.
            if !matches!(self.lexer.peek()?, Token::Quoted(_)) {
                break;
            }
            (token, quote) = self.lexer.next()?;
        }
        if matches!(field.kind, Kind::String) && str::from_utf8(&self.out[start..]).is_err() {
            let reason = format!("`{}` holds text, but this is not UTF-8", field.name);
            return Err(self.lexer.error(at, reason));
        }
        self.put_length(start);
        Ok(())
    }

    fn float(&mut self, field: &Field, token: Token<'a>, at: usize) -> Result<()> {
        let (negative, token, at) = self.sign(token, at)?;
        let value = match token {
            Token::Number(text) => number::float(text),
            Token::Word(word) => {
                number::float_word(word).ok_or_else(|| format!("`{word}` is not a number"))
            }
            other => {
                return Err(self.expected(&format!("a number for `{}`", field.name), other, at));
            }
        };
        let value = value.map_err(|reason| self.lexer.error(at, reason))?;
        let value = if negative { -value } else { value };
        match field.kind {
            Kind::Float => self.out.extend((value as f32).to_le_bytes()),
            _ => self.out.extend(value.to_le_bytes()),
        }
        Ok(())
    }

    fn boolean(&mut self, field: &Field, token: Token<'a>, at: usize) -> Result<()> {
        let value = match token {
            Token::Word("true" | "True" | "t") => true,
            Token::Word("false" | "False" | "f") => false,
            Token::Number(text) if number::integer(text) == Ok(1) => true,
            Token::Number(text) if number::integer(text) == Ok(0) => false,
            other => {
                let what = format!("`true` or `false` for `{}`", field.name);
                return Err(self.expected(&what, other, at));
            }
        };
        self.varint(value.into());
        Ok(())
    }

    fn enumeration(
        &mut self,
        field: &Field,
        names: &'static Enum,
        token: Token<'a>,
        at: usize,
    ) -> Result<()> {
        let Token::Word(name) = token else { return self.integer(field, token, at) };
        match names.number(name) {
            Some(value) => self.varint(i64::from(value) as u64),
            None => {
                let near = nearest(name, names.values.iter().map(|&(name, _)| name));
                return Err(self.unknown(
                    at,
                    format!("{} has no value `{name}`", names.name),
                    near,
                ));
            }
        }
        Ok(())
    }

    fn integer(&mut self, field: &Field, token: Token<'a>, at: usize) -> Result<()> {
        let (negative, token, at) = self.sign(token, at)?;
        let Token::Number(text) = token else {
            return Err(self.expected(&format!("an integer for `{}`", field.name), token, at));
        };
        let size = number::integer(text).map_err(|reason| self.lexer.error(at, reason))?;
        let value = if negative { -i128::from(size) } else { i128::from(size) };
        let (least, most) = match field.kind {
            Kind::Uint32 | Kind::Fixed32 => (0, i128::from(u32::MAX)),
            Kind::Uint64 | Kind::Fixed64 => (0, i128::from(u64::MAX)),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => (i64::MIN.into(), i64::MAX.into()),
            _ => (i32::MIN.into(), i32::MAX.into()),
        };
        if !(least..=most).contains(&value) {
            let reason =
                format!("{value} is out of range for `{}` ({least} to {most})", field.name);
            return Err(self.lexer.error(at, reason));
        }
        match field.kind {
            Kind::Fixed32 | Kind::Sfixed32 => self.out.extend((value as u32).to_le_bytes()),
            Kind::Fixed64 | Kind::Sfixed64 => self.out.extend((value as u64).to_le_bytes()),
            Kind::Sint32 | Kind::Sint64 => {
                let value = value as i64;
                self.varint(((value << 1) ^ (value >> 63)) as u64);
            }
            _ => self.varint(value as u64),
        }
        Ok(())
    }

    /// Whether a minus stands before the value, and the token that follows it.
    fn sign(&mut self, token: Token<'a>, at: usize) -> Result<(bool, Token<'a>, usize)> {
        if token != Token::Symbol(b'-') {
            return Ok((false, token, at));
        }
        let (token, at) = self.lexer.next()?;
        Ok((true, token, at))
    }

    fn varint(&mut self, value: u64) {
        prost::encoding::encode_varint(value, &mut self.out);
    }

    /// Puts the length of what was written since `start` before it.
    fn put_length(&mut self, start: usize) {
        let end = self.out.len();
        self.varint((end - start) as u64);
        let digits = self.out.len() - end;
        self.out[start..].rotate_right(digits);
    }

    fn expected(&self, what: &str, found: Token<'_>, at: usize) -> Error {
        let found = match found {
            Token::End => "the end of the text".into(),
            Token::Word(text) | Token::Number(text) => format!("`{text}`"),
            Token::Quoted(_) => "a string".into(),
            Token::Symbol(symbol) => format!("`{}`", symbol as char),
        };
        self.lexer.error(at, format!("expected {what}, found {found}"))
    }

    fn unknown(&self, at: usize, mut reason: String, near: Vec<String>) -> Error {
        if let Some(near) = near.first() {
            reason += &format!("; did you mean `{near}`?");
        }
        self.lexer.error(at, reason)
    }
}
