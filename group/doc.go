// Package group adds up targets: a group has members, and is ready while enough of them
// are. It is for people, who want to know whether a service works, and for gateways, which
// send requests to those members that are ready.
//
// Groups follows an engine. Each Group publishes a View: its members with their states,
// and its own state. A View never changes; a reader gets the present one by one atomic
// load, and waits for the next one with Next.
//
// Nothing is known of a member before attempts have found out, such as after a start. Such
// a member is Undecided, not Down, and a group whose state depends on such members is
// Undecided itself.
//
// For gateways a View also says which members are in rotation, and with which weights. A
// gateway that follows it obeys View.Frozen: as long as it is true, it keeps what it has. A
// Go program picks a member for each request with Group.Pick.
//
//	state.go     the decision about a group, as a pure function, and the states
//	floor.go     which restarts groups withhold so that enough members stay ready
//	wait.go      when a group waits for its members before gateways act
//	rotation.go  the decisions about its members: pure functions
//	members.go   the list of members, of which each change makes another list
//	view.go      View: what is published
//	pick.go      Pick: one member for one request
//	addresses.go View.MembersAt: members by address
//	group.go     Group: one group, and its readers
//	observed.go  what the engine says about a target
//	groups.go    Groups: follows an engine, and logs
//	mirror.go    Mirror: a Group whose Views come from another process
//	gateway.go   what a gateway says about itself
package group
