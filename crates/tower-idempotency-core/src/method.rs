//! Which methods are covered.

use http::Method;

/// The methods whose requests are protected: POST and PATCH by default.
///
/// OPTIONS and HEAD never are: a preflight has no key, and neither writes.
#[derive(Debug, Clone)]
pub(crate) struct Methods(Vec<Method>);

impl Methods {
    pub(crate) fn new(methods: impl IntoIterator<Item = Method>) -> Self {
        Self(methods.into_iter().collect())
    }

    pub(crate) fn cover(&self, method: &Method) -> bool {
        !matches!(*method, Method::OPTIONS | Method::HEAD) && self.0.contains(method)
    }
}

impl Default for Methods {
    fn default() -> Self {
        Self::new([Method::POST, Method::PATCH])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R4: POST and PATCH are covered, others on request, OPTIONS and HEAD never.
    #[test]
    fn covered_methods() {
        let default = Methods::default();
        assert!(default.cover(&Method::POST) && default.cover(&Method::PATCH));
        assert!(
            !default.cover(&Method::PUT)
                && !default.cover(&Method::DELETE)
                && !default.cover(&Method::GET)
        );
        let all = Methods::new([Method::DELETE, Method::OPTIONS, Method::HEAD]);
        assert!(all.cover(&Method::DELETE));
        assert!(
            !all.cover(&Method::OPTIONS) && !all.cover(&Method::HEAD) && !all.cover(&Method::POST)
        );
    }
}
