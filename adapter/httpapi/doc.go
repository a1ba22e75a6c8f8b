// Package httpapi shows a running engine over HTTP: a JSON API, server-sent
// events, a status page, and the engine's own health. It reads, and never
// changes anything.
//
//	GET /                    the status page; works without other machines
//	GET /v1/targets          a Targets; ?verdict= ?kind= ?after= ?limit= ?probes=true
//	GET /v1/targets/{name}   a Target with its probes; name may contain slashes
//	GET /v1/events           an Event each time a verdict changes; ?target= ?snapshot=true
//	GET /v1/stats            a Stats
//	GET /metrics             what Config.Metrics serves
//	GET /healthz             200 while the engine's loop runs, else 503
//	GET /readyz              200 once the engine does its work, else 503
//
// An error is {"error":{"status":404,"message":"there is no target \"web\""}}
// with that status. Fields are in camelCase. Durations are numbers of seconds,
// and their names end in Seconds. Times are as in RFC 3339.
//
// # Events
//
// /v1/events is a stream of server-sent events. Each has a type, an id and a
// Probe as JSON:
//
//	event: verdict   a verdict has changed, or a new probe has one
//	event: snapshot  the state of a probe at the start, with ?snapshot=true only
//	event: removed   the probe is not there any more; only what names it is given
//
// The id counts the events of this connection. A reader that is slower than the
// changes misses some of them and never the last one. A stream that broke off is
// not resumed: ask for a snapshot again. A comment comes every Heartbeat in which
// there was no event.
//
// # Who may ask
//
// Without a token and without client certificates only callers on this machine
// are answered, by a listener on a loopback address. Their Host header must name
// a loopback address too, so that a web page that somebody visits here cannot ask
// by way of a name of its own that leads to 127.0.0.1. Requests that a browser
// makes for another site's page are refused always.
//
// With a token every request needs "Authorization: Bearer <token>", except those
// for /healthz, /readyz and the page. The page holds no secret; it asks for the
// token and keeps it until its tab is closed. A token in a query is refused, since
// queries are logged. With client certificates nobody without one can connect.
// Where both are configured, both are needed.
package httpapi
