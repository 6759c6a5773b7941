//! `serde_json` values that count what a validator does with them.
//!
//! The validator has no budget of its own. It can only look at an input through these accessors, so
//! that counting here bounds every schema: nested choices, references that lead back, patterns.

use std::{borrow::Cow, cell::Cell, ops::ControlFlow, panic::resume_unwind, ptr};

use jsonschema::{
    JsonType,
    json::{Array, Json, Node, NodeIdentity, Object, cmp, unique},
};
use serde_json::{Map, Number, Value};

use crate::limits;

/// What the unwinding of an exhausted check carries.
pub(super) struct Exhausted;

/// The steps and the stack that one check may still take.
pub(super) struct Meter {
    steps: Cell<u64>,
    member_cost: u64,
    /// Where the stack stood when the check began.
    stack: usize,
}

impl Meter {
    pub(super) fn new(steps: u64, member_cost: u64) -> Self {
        Self { steps: Cell::new(steps), member_cost, stack: stack_position() }
    }

    pub(super) fn node<'a>(&'a self, value: &'a Value) -> Counted<'a> {
        Counted { value, meter: Some(self) }
    }

    fn charge(&self, steps: u64) {
        let left = self.steps.get().checked_sub(steps);
        let stack = self.stack.abs_diff(stack_position());
        match left {
            Some(left) if stack <= limits::SCHEMA_STACK_BYTES.size() => self.steps.set(left),
            // Not `panic!`: nothing is broken, and no hook should write about it.
            _ => resume_unwind(Box::new(Exhausted)),
        }
    }
}

/// The address of a local: how deep the recursion stands, near enough.
#[inline(never)]
fn stack_position() -> usize {
    let marker = 0_u8;
    ptr::from_ref(std::hint::black_box(&marker)).addr()
}

/// The representation that the validator is compiled for.
pub(super) struct Metered;

/// A value and the meter that looking at it is charged to.
#[derive(Clone, Copy)]
pub(super) struct Counted<'a> {
    value: &'a Value,
    /// `None` only for names that the validator makes up itself.
    meter: Option<&'a Meter>,
}

impl<'a> Counted<'a> {
    fn charge(&self, steps: u64) {
        if let Some(meter) = self.meter {
            meter.charge(steps);
        }
    }

    fn beside(self, value: &'a Value) -> Self {
        Self { value, meter: self.meter }
    }
}

impl Json for Metered {
    type Node<'a> = Counted<'a>;
    type PreparedKey = String;
    type StringBuffer = ();

    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>((): &mut (), text: &str, f: impl FnOnce(Counted<'_>) -> T) -> T {
        f(Counted { value: &Value::String(text.to_owned()), meter: None })
    }
}

impl<'a> Node<'a, Metered> for Counted<'a> {
    type Object = Members<'a>;
    type Array = Items<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        self.charge(1);
        self.value.as_object().map(|members| Members { members, node: *self })
    }

    fn as_array(&self) -> Option<Items<'a>> {
        self.charge(1);
        self.value.as_array().map(|items| Items { items, node: *self })
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.value.as_str();
        // A pattern reads the text from end to end.
        self.charge(1 + text.map_or(0, |text| text.len() as u64 / 16));
        text.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        self.charge(1);
        self.value.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.charge(1);
        self.value.as_bool()
    }

    fn is_null(&self) -> bool {
        self.charge(1);
        self.value.is_null()
    }

    fn json_type(&self) -> JsonType {
        self.charge(1);
        match self.value {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        self.charge(1 + size(expected));
        cmp::equal(self.value, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(self.value)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        self.charge(1);
        Some(NodeIdentity::new(ptr::from_ref(self.value).addr()))
    }
}

/// What comparing with this value costs at most, near enough.
fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64 / 64,
        Value::Array(items) => items.len() as u64,
        Value::Object(members) => members.len() as u64,
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[derive(Clone, Copy)]
pub(super) struct Members<'a> {
    members: &'a Map<String, Value>,
    node: Counted<'a>,
}

impl Members<'_> {
    fn charge_member(&self) {
        self.node.charge(self.node.meter.map_or(1, |meter| meter.member_cost));
    }
}

impl<'a> Object<'a, Metered> for Members<'a> {
    type Node = Counted<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        self.members.len()
    }

    fn get(&self, key: &String) -> Option<Counted<'a>> {
        self.node.charge(1);
        self.members.get(key).map(|value| self.node.beside(value))
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter { object: *self, iter: self.members.iter() }
    }

    fn try_for_each_name_node<B>(
        &self,
        (): &mut (),
        mut f: impl FnMut(Counted<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for name in self.members.keys() {
            self.charge_member();
            f(Counted { value: &Value::String(name.clone()), meter: self.node.meter })?;
        }
        ControlFlow::Continue(())
    }
}

pub(super) struct MembersIter<'a> {
    object: Members<'a>,
    iter: serde_json::map::Iter<'a>,
}

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, Counted<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.iter.next()?;
        self.object.charge_member();
        Some((name, self.object.node.beside(value)))
    }
}

pub(super) struct Items<'a> {
    items: &'a [Value],
    node: Counted<'a>,
}

impl<'a> Array<'a, Metered> for Items<'a> {
    type Node = Counted<'a>;
    type ElementsIter = ItemsIter<'a>;

    fn len(&self) -> usize {
        self.items.len()
    }

    fn elements(&self) -> ItemsIter<'a> {
        ItemsIter { iter: self.items.iter(), node: self.node }
    }

    fn is_unique(&self) -> bool {
        // Hashed, so it costs about as much as reading each item once.
        self.node.charge(self.items.iter().map(deep_size).sum());
        unique::is_unique(self.items)
    }
}

fn deep_size(value: &Value) -> u64 {
    1 + match value {
        Value::String(text) => text.len() as u64 / 64,
        Value::Array(items) => items.iter().map(deep_size).sum(),
        Value::Object(members) => members.values().map(deep_size).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

pub(super) struct ItemsIter<'a> {
    iter: std::slice::Iter<'a, Value>,
    node: Counted<'a>,
}

impl<'a> Iterator for ItemsIter<'a> {
    type Item = Counted<'a>;

    fn next(&mut self) -> Option<Counted<'a>> {
        let value = self.iter.next()?;
        self.node.charge(1);
        Some(self.node.beside(value))
    }
}
