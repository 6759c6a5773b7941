//! The closed sets of words of the API, as the OpenAPI document lists them: the domain's own.

use std::borrow::Cow;

use domain::{
    invocation::{self, Origin},
    permission::{self, AuthorizationSource, EpochReason, OwnerKind, RequestState, ToolPolicy},
    tool::Pin,
    user,
};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

macro_rules! terms {
    ($($(#[$doc:meta])* $name:ident = $words:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                one_of($words)
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )*};
}

terms! {
    /// How a session treats dangerous calls.
    ApprovalMode = [permission::ApprovalMode::AskForDangerous, permission::ApprovalMode::AlwaysAllow]
        .map(permission::ApprovalMode::as_str);
    /// A person's answer.
    Decision = permission::Decision::ALL.iter().map(|one| one.as_str());
    /// On what ground a call was allowed or denied.
    Source = AuthorizationSource::ALL.iter().map(|one| one.as_str());
    /// Why a new epoch began.
    Reason = EpochReason::ALL.iter().map(|one| one.as_str());
    /// Of a question.
    QuestionState = RequestState::ALL.iter().map(|one| one.as_str());
    /// What asked.
    Owner = OwnerKind::ALL.iter().map(|one| one.as_str());
    /// The superadmin's word on one tool.
    Policy = ToolPolicy::ALL.iter().map(|one| one.as_str());
    /// What is known of a tool's definition.
    PinState = Pin::ALL.iter().map(|one| one.as_str());
    /// What a person may do in their tenant.
    Role = domain::Role::ALL.iter().map(|one| one.as_str());
    /// What a token may do.
    Scope = domain::Scope::ALL.iter().map(|one| one.as_str());
    /// Of a person.
    UserState = user::UserStatus::ALL.iter().map(|one| one.as_str());
    /// Of a call.
    CallStatus = invocation::Status::ALL.iter().map(|one| one.as_str());
    /// One thing that a call has to pass.
    Gate = app::broker::Gate::ALL.iter().map(|one| one.as_str());
    /// How a gate stands.
    Standing = app::access::Standing::ALL.iter().map(|one| one.as_str());
    /// Where a call came from.
    CallOrigin = Origin::ALL.iter().map(|one| one.as_str());
}

fn one_of(words: impl IntoIterator<Item = &'static str>) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).into()
}
