//! What requests to ASP.NET Core were for.

use std::collections::HashMap;

use crate::request::Activity;

/// The most threads whose requests are about to end.
const THREADS: usize = 16_384;

/// Values of a route that are parts of its template more often than of what is asked for.
const OF_TEMPLATE: [&str; 4] = ["controller", "action", "area", "page"];

/// Names the activities of requests to ASP.NET Core, where these do not tell what was asked for: up to .NET 10 all have
/// one name, and later all that have no route.
///
/// The runtime tells it on the same thread just before the activity ends.
#[derive(Debug, Clone, Default)]
pub struct EndpointNames {
    of_thread: HashMap<u64, String>,
}

impl EndpointNames {
    /// A request of this endpoint is about to end on a thread.
    pub fn request_ends(&mut self, thread: u64, endpoint: String) {
        if self.of_thread.len() >= THREADS {
            self.of_thread.clear();
        }
        self.of_thread.insert(thread, endpoint);
    }

    /// An activity ends on a thread: it gets its name, if it has none of its own.
    pub fn complete(&mut self, thread: u64, activity: &mut Activity) {
        if activity.source != "Microsoft.AspNetCore" {
            return;
        }
        let Some(endpoint) = self.of_thread.remove(&thread) else { return };
        let method = endpoint.split(' ').next().unwrap_or_default();
        // From .NET 11 on it is the method alone where there is no route, and `HTTP` for other methods.
        let is_without_name = ["", method, "HTTP", &activity.name].contains(&&activity.display_name[..]);
        if is_without_name {
            activity.display_name = endpoint;
        }
    }
}

/// The name of an endpoint, by the path that was asked for and the values of its route: `[id, 17],[page, 2]`.
pub(crate) fn endpoint(method: &str, path: &str, route: &str, status: &str) -> String {
    // What nobody answers for may be asked for by any name.
    if route.is_empty() && status == "404" {
        return format!("{method} [not found]");
    }
    // A value may also stand in the template. It does so before its own place more often than behind it, and the values
    // come in the order of their places.
    let mut before: Vec<&str> = path.split('/').collect();
    let mut behind: Vec<String> = Vec::new();
    let values: Vec<(&str, &str)> = values(route).filter(|(key, _)| !OF_TEMPLATE.contains(key)).collect();
    for (key, value) in values.into_iter().rev() {
        // That of the rest of a path has several segments.
        let parts: Vec<&str> = value.split('/').collect();
        let Some(place) = before.windows(parts.len()).rposition(|window| window == parts) else { continue };
        let rest = before.split_off(place + parts.len());
        behind.extend(rest.into_iter().rev().map(str::to_owned));
        behind.push(format!("{{{key}}}"));
        before.truncate(place);
    }
    let segments: Vec<String> = before.into_iter().map(str::to_owned).chain(behind.into_iter().rev()).collect();
    format!("{method} {}", segments.join("/"))
}

fn values(route: &str) -> impl Iterator<Item = (&str, &str)> {
    let inner = route.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
    inner.split("],[").filter_map(|pair| pair.split_once(", ")).filter(|(_, value)| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_route_are_not_in_the_name() {
        assert_eq!(endpoint("GET", "/orders", "", "200"), "GET /orders");
        assert_eq!(endpoint("PUT", "/orders/17/lines/2", "[id, 17],[line, 2]", "204"), "PUT /orders/{id}/lines/{line}");
        let of_controller = endpoint("GET", "/Home/Show/17", "[controller, Home],[action, Show],[id, 17]", "200");
        assert_eq!(of_controller, "GET /Home/Show/{id}");
        assert_eq!(endpoint("GET", "/a/7", "[id, 7]", "404"), "GET /a/{id}");
        assert_eq!(endpoint("GET", "/mini/mini", "[id, mini]", "200"), "GET /mini/{id}");
        assert_eq!(endpoint("GET", "/group/group/x", "[tenant, group]", "200"), "GET /group/{tenant}/x");
        assert_eq!(endpoint("GET", "/mini/5/items/5", "[id, 5],[item, 5]", "200"), "GET /mini/{id}/items/{item}");
        assert_eq!(endpoint("GET", "/files/a/b/c1", "[path, a/b/c1]", "200"), "GET /files/{path}");
        assert_eq!(endpoint("GET", "/files/7/a/b", "[id, 7],[path, a/b]", "200"), "GET /files/{id}/{path}");
        assert_eq!(endpoint("GET", "/html/a-b", "[first, a],[second, b]", "200"), "GET /html/a-b");
        assert_eq!(endpoint("GET", "/wp-login.php", "", "404"), "GET [not found]");
        for odd in ["[", "]", "[]", "[,]", "[a]", "[a, ],[b, ]"] {
            assert_eq!(endpoint("GET", "/a//b", odd, "200"), "GET /a//b", "{odd}");
        }
    }

    #[test]
    fn only_activities_without_a_name_get_it() {
        let mut names = EndpointNames::default();
        let mut named = |source: &str, display_name: &str| {
            names.request_ends(1, "GET /orders".to_owned());
            let (source, display_name) = (source.to_owned(), display_name.to_owned());
            let mut activity =
                Activity { source, display_name, name: "HttpRequestIn".to_owned(), ..Activity::default() };
            names.complete(2, &mut activity);
            names.complete(1, &mut activity);
            activity.display_name
        };
        assert_eq!(named("Microsoft.AspNetCore", "HttpRequestIn"), "GET /orders");
        assert_eq!(named("Microsoft.AspNetCore", ""), "GET /orders");
        assert_eq!(named("Microsoft.AspNetCore", "GET"), "GET /orders");
        assert_eq!(named("Microsoft.AspNetCore", "GET /o"), "GET /o");
        assert_eq!(named("Microsoft.AspNetCore", "Checkout"), "Checkout");
        assert_eq!(named("System.Net.Http", "HttpRequestIn"), "HttpRequestIn");
    }
}
