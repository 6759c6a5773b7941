//! Which servers a session may use.

use crate::ids::ServerId;

/// The servers that are in reach: the session's own list, else its project's, else the tenant's.
///
/// `None` inherits. The tenant's list is what all sessions use, not a bound: a person may choose any
/// enabled server for a session of theirs, and that choice is an approval (scope `approve`).
#[must_use]
pub fn effective_selection<'a>(
    tenant: &'a [ServerId],
    project: Option<&'a [ServerId]>,
    session: Option<&'a [ServerId]>,
) -> &'a [ServerId] {
    session.or(project).unwrap_or(tenant)
}

/// Whether `chosen` reaches a server that `inherited` does not: such a choice is an approval.
#[must_use]
pub fn widens(chosen: &[ServerId], inherited: &[ServerId]) -> bool {
    chosen.iter().any(|id| !inherited.contains(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<ServerId> {
        names.iter().map(|name| ServerId::from(*name)).collect()
    }

    #[test]
    fn nothing_said_inherits() {
        let (tenant, project) = (ids(&["a", "b"]), ids(&["b"]));
        assert_eq!(effective_selection(&tenant, None, None), tenant);
        assert_eq!(effective_selection(&tenant, Some(&project), None), project);
    }

    #[test]
    fn an_empty_list_is_a_choice() {
        assert!(effective_selection(&ids(&["a"]), None, Some(&[])).is_empty());
    }

    #[test]
    fn leaving_out_is_no_widening() {
        assert!(!widens(&ids(&["a"]), &ids(&["a", "b"])));
        assert!(widens(&ids(&["a", "c"]), &ids(&["a", "b"])));
    }
}
