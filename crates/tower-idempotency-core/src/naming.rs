//! How a request gets its operation.

use http::Method;
use http::request::Parts;

use crate::operation::Operation;
use crate::policy::NamingHook;
use crate::route::matched_route;

/// What names a request's operation: the first of these that does.
#[derive(Clone, Default)]
pub(crate) struct Naming {
    always: Option<Operation>,
    with: Option<NamingHook>,
    routes: Vec<(Method, String, Operation)>,
}

impl Naming {
    pub(crate) fn always(&mut self, operation: Operation) {
        self.always = Some(operation);
    }

    pub(crate) fn for_route(&mut self, method: Method, route: String, operation: Operation) {
        self.routes.push((method, route, operation));
    }

    pub(crate) fn with(&mut self, name: NamingHook) {
        self.with = Some(name);
    }

    /// `None` for a fallback: no name was given and no route matched.
    pub(crate) fn of(&self, parts: &Parts) -> Option<Operation> {
        if let Some(operation) = &self.always {
            return Some(operation.clone());
        }
        if let Some(operation) = self.with.as_ref().and_then(|name| name(parts)) {
            return Some(operation);
        }
        let route = matched_route(parts)?;
        let named = self
            .routes
            .iter()
            .find(|(method, named, _)| *method == parts.method && named == route);
        match named {
            Some((_, _, operation)) => Some(operation.clone()),
            None => Operation::of_route(&parts.method, route)
                .inspect_err(|error| {
                    tracing::error!(%error, route, "name this route's operation with `.operation(..)`");
                })
                .ok(),
        }
    }
}
