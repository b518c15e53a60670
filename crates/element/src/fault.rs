//! What is answered where something is not done.

use aide::generate::GenContext;
use aide::openapi::{Operation, Response as Described};
use aide::operation::OperationOutput;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use flowgauge_credential::NoRights;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Problem {
    /// What is wrong.
    pub error: String,
    /// Where: a field of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A problem, and the status of HTTP that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) problem: Problem,
}

impl Fault {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>, hint: &str) -> Fault {
        Fault {
            status,
            problem: Problem {
                error: error.into(),
                place: None,
                hint: Some(hint.to_owned()),
            },
        }
    }

    /// What is asked for is wrong at a place.
    pub(crate) fn invalid(place: &str, error: impl Into<String>, hint: impl Into<String>) -> Fault {
        Fault {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            problem: Problem {
                error: error.into(),
                place: Some(place.to_owned()),
                hint: Some(hint.into()),
            },
        }
    }

    /// It is not there, or the asker may not know of it: which of them is not told.
    pub(crate) fn unavailable() -> Fault {
        let hint = "it does not exist, or you have no right to it: ask the element's administrator";
        Fault::new(StatusCode::NOT_FOUND, "resource not available", hint)
    }

    /// There is too much of something already.
    pub(crate) fn busy(error: impl Into<String>) -> Fault {
        let hint = "try it again later, or cancel sessions that are not needed";
        Fault::new(StatusCode::SERVICE_UNAVAILABLE, error, hint)
    }

    /// Something that the element needs has failed.
    pub(crate) fn failed(error: impl Into<String>) -> Fault {
        let hint = "the log of the element may say more";
        Fault::new(StatusCode::INTERNAL_SERVER_ERROR, error, hint)
    }
}

impl From<NoRights> for Fault {
    fn from(no: NoRights) -> Fault {
        Fault::new(StatusCode::UNAUTHORIZED, no.error, no.hint)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        (self.status, Json(self.problem)).into_response()
    }
}

impl OperationOutput for Fault {
    type Inner = Problem;

    fn operation_response(
        context: &mut GenContext,
        operation: &mut Operation,
    ) -> Option<Described> {
        Json::<Problem>::operation_response(context, operation)
    }

    fn inferred_responses(
        context: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<u16>, Described)> {
        let response = Fault::operation_response(context, operation);
        response
            .map(|response| (None, response))
            .into_iter()
            .collect()
    }
}
