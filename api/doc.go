// Package api serves the state of a running engine over HTTP: a JSON API, server-sent events, a status page, and health
// checks of the engine itself. Only POST requests change the engine, except that a beat may also be sent by GET.
//
//	GET /                    the status page; loads nothing from other hosts
//	GET /v1/targets          a Targets; ?trouble=true ?state= ?verdict= ?kind= ?group= ?name= ?label= ?sort=trouble ?after= ?limit= ?probes=true ?groups=true
//	GET /v1/targets/{name}   a Target with its probes and an explanation; name may contain slashes
//	GET /v1/targets/{name}/history  a History: the latest transitions of the target
//	GET /v1/uptime           an UptimeList: the states of up to 64 targets in the last 24 hours; ?target=, ?latency=true
//	GET /v1/events           an Event each time a verdict changes; ?target= ?targets=true ?group= ?name= ?label= ?snapshot=true
//	GET /v1/groups           a GroupList
//	GET /v1/groups/{name}    a Group with its members; ?after= ?version= ?wait=
//	GET /v1/gateways         a GatewayList
//	GET /v1/discoveries      a DiscoveryList: the status of each source of targets
//	GET /v1/maintenance      a MaintenanceList
//	GET /v1/cluster          a Cluster; 404 without one
//	GET /v1/notifiers        a NotifierList
//	POST /v1/notifiers/{name}/test  sends a test notice to the receivers of a notifier: a NotifierTest
//	GET /v1/reload           a Reload: the result of the last reload of the configuration
//	POST /v1/reload          reloads the configuration: a Reload, with status 422 if it was rejected; ?force=true
//	POST /v1/report          takes a gateway's report of its requests to a target: a TrafficTaken; ?target=, by=, requests=, failures= and detail=
//	POST /v1/plan            a Plan: what a reload would do; ?config=
//	GET /v1/stats            a Stats
//	GET /badge/{name}.svg    the state of a target as an image; /badge/group/{name}.svg that of a group
//	GET /metrics             the handler Config.Metrics
//	GET /healthz             200 while the engine runs, else 503
//	GET /readyz              200 while the engine makes attempts and is not degraded, else 503
//
// An error is {"error":{"status":404,"message":"there is no target \"web\""}}, with
// the same status in the response. Fields are in camelCase. Durations are numbers of
// seconds, in fields whose names end in Seconds. Times have the format of RFC 3339.
//
// # States
//
// The state of a target (probe.TargetState) summarizes its instance and its probes in one word. The states of trouble
// come first, the worst one first:
//
//	cannot_start     an instance cannot be started
//	crash_looping    its instances exit, or are terminated, one after another
//	exited           its last instance has exited with an error, and is not replaced
//	restart_blocked  a startup or liveness probe fails, and the restart waits for the budget, a group, the engine, a dependency, or a corrected configuration
//	failing          a startup or liveness probe fails
//	not_ready        a readiness probe fails
//	blind            the attempts of a probe cannot be made (severity warning; those above are critical)
//	degraded         it is ready, and a readiness or liveness probe warns (severity warning)
//	unreachable      it fails, and a dependency is in trouble (not a state of trouble itself)
//	damped           it has flapped too often: it is neither reported nor restarted, and gateways send it no requests
//	paused           an operator has paused it, or it is under maintenance: nothing is done about it, whether it is well or not
//	absent           no driver has reported an instance
//	stopped          it is terminating or has exited, as requested
//	restarting       its instance has exited, and the next one starts immediately
//	starting         not all startup and readiness probes have a verdict yet
//	completed        its last instance has exited with status 0, and is not replaced
//	ready            it has started, and its readiness probes pass
//
// A target that is crash_looping, restart_blocked, failing, blind, unreachable, damped or paused may be ready at the
// same time, as the field ready shows. The counts of /v1/targets include all targets. With ?sort=trouble the targets in
// trouble come first, and next is not the name of a target.
//
// # Events
//
// /v1/events is a stream of server-sent events. Each has a type, an id and a Probe as JSON:
//
//	event: verdict   the verdict has changed, or a new probe has its first one
//	event: snapshot  the state of a probe at the start, with ?snapshot=true only
//	event: removed   the probe was removed; its Probe has only id, target, kind and name
//
// With ?targets=true it has targets instead, each a Target without its probes:
//
//	event: target          the state or the instance of the target has changed; the state at the start, with ?snapshot=true only
//	event: target_removed  the target was removed; the Target has only a name
//
// ?name= selects targets by name, in which * and ? are wildcards, and ?label= by label, as in ?label=team=shop or
// ?label=team!=shop. Both may be repeated: a target is selected if one name and all labels match. ?group= selects the
// members of a group. If the group's definition changes, a target that joins or leaves the group is reported at its next
// change. The stream ends when the group is removed.
//
// The id counts the events of a connection. A slow reader may miss changes, but never the last one of a probe. A broken
// stream cannot be resumed: connect again with ?snapshot=true. A comment is sent after every 15 seconds without an
// event.
//
// # Changes of groups
//
// With ?version= the response of /v1/groups/{name} waits until the group has a different version, for at most ?wait=,
// which is a duration such as 20s, by default one minute. A client follows the group by repeating the request with the
// version of the last response. Versions grow with each change, and from one engine to the next, so that a client of an
// earlier engine gets a response immediately.
//
// # Access
//
// Without a token and without client certificates the server listens only on a loopback address, and the Host header
// must name a loopback address as well: that prevents DNS rebinding, by which a web page could reach 127.0.0.1 under its
// own name. Cross-site requests of browsers are always rejected.
//
// With a token every request needs "Authorization: Bearer <token>", except requests for /healthz, /readyz and the page.
// The page itself has no data; it asks for the token and keeps it until its tab is closed. A token in the query is
// rejected, because queries are logged. With client certificates every connection needs one. When both are configured,
// both are needed.
//
// POST needs the token even on a loopback address, where every user of the machine could send it: without a configured
// token it is rejected, whatever credentials a client has. A listener on a unix socket is for the engine's user, who
// needs neither token nor certificate.
//
// # Limits
//
// No client can exclude others by keeping connections open. When 256 are open, a new one replaces the one that has been
// idle the longest. A client that does not read its response is disconnected after a while. Large responses, the lists
// of targets, have a limit of their own, so that slow clients do not block /healthz, /metrics or /v1/stats.
//
// Files: api.go has the configuration and routes, serve.go the listener, guard.go the access rules; targets.go,
// query.go, uptime.go, events.go, reload.go and plan.go serve requests, others.go adds the targets that other engines of
// a cluster probe; types.go and render.go are the JSON, explain.go describes it in sentences, page.go serves the status
// page, and client.go is the client.
package api
