// Package group combines targets into groups: a group is ready while enough of its members are. Groups serve people, who
// want to know whether a service works, and gateways, which send requests to the ready members.
//
// Groups follows an engine. Each Group publishes a View: its members with their states, and its own state. A View never
// changes. A reader gets the current View with one atomic load, and waits for the next one with Next.
//
// The state of a member is not known until attempts have been made, for example after a start. Such a member is Undecided,
// not Down. If the state of a group depends on such members, the group is Undecided as well.
//
// A View also lists the members in rotation and their weights for gateways. A gateway that follows a View
// obeys View.Frozen: while it is true, the gateway keeps its current members. A Go program picks a member
// for each request with Group.Pick.
//
//	state.go     group states, and the pure function that decides them
//	floor.go     restarts that groups withhold so that enough members stay ready
//	wait.go      when a group waits for its members before gateways act
//	rotation.go  which members are in rotation: pure functions
//	members.go   the member list; each change makes a new list
//	view.go      View: a published state of a group
//	pick.go      Pick: selects one member for one request
//	addresses.go View.MembersAt: members by address
//	group.go     Group: one group, and its readers
//	observed.go  the status of a target as the engine reports it
//	groups.go    Groups: follows an engine, and logs
//	mirror.go    Mirror: a Group whose Views come from another process
//	gateway.go   the status of a gateway
package group
