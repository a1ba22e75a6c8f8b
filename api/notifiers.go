package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"
)

// NotifierList is the response of /v1/notifiers.
type NotifierList struct {
	Notifiers []Notifier `json:"notifiers"` // sorted by name and receiver
}

// Notifier is one receiver of a notifier.
type Notifier struct {
	Name     string `json:"name"`
	Output   string `json:"output"`   // what it is told by, such as "alertmanager"
	Receiver string `json:"receiver"` // its name, such as "http://am-1:9093"
	State    string `json:"state"`    // "up_to_date"; "failing" while Error is set; "behind" while there is something to tell

	Firing       int       `json:"firing"`                // of how many targets and groups it was told last that they are in trouble
	Held         int       `json:"held"`                  // how many in trouble it is not told about for now: paused ones, and those that the engine doubts
	Pending      uint64    `json:"pending"`               // how many transitions it was not told, of all targets
	PendingSince time.Time `json:"pendingSince,omitzero"` // the first of them

	Sent    uint64    `json:"sent"`          // how many notices it has accepted
	Last    time.Time `json:"last,omitzero"` // the last of them
	Dropped uint64    `json:"dropped"`       // how many notices it has rejected: it will not get them again
	Lost    uint64    `json:"lost"`          // how many transitions were forgotten before it was told, of all targets

	Errors     uint64    `json:"errors"`              // how many attempts to send notices have failed
	Error      string    `json:"error,omitempty"`     // of the latest attempt; empty if it has succeeded
	ErrorSince time.Time `json:"errorSince,omitzero"` // when the unbroken series of failures began
}

// The states of a Notifier.
const (
	NotifierUpToDate = "up_to_date"
	NotifierFailing  = "failing" // the latest attempt has failed
	NotifierBehind   = "behind"  // it was not told everything yet
)

// NotifierTest is the response to a test of a notifier.
type NotifierTest struct {
	Name      string         `json:"name"`
	Receivers []ReceiverTest `json:"receivers"` // sorted by name
}

// ReceiverTest is whether a receiver has accepted a test notice.
type ReceiverTest struct {
	Receiver string `json:"receiver"`
	Error    string `json:"error,omitempty"` // empty if it has
}

// notifiers serves /v1/notifiers.
func (s *Server) notifiers(http.ResponseWriter, *http.Request) (any, error) {
	list := NotifierList{Notifiers: []Notifier{}}
	if s.config.Notifiers != nil {
		for _, n := range s.config.Notifiers() {
			switch n.State = NotifierUpToDate; {
			case n.Error != "":
				n.State = NotifierFailing
			case n.Pending > 0:
				n.State = NotifierBehind
			}
			n.PendingSince, n.Last, n.ErrorSince = utc(n.PendingSince), utc(n.Last), utc(n.ErrorSince)
			list.Notifiers = append(list.Notifiers, n)
		}
	}
	return list, nil
}

// testNotifier serves POST /v1/notifiers/{name}/test.
func (s *Server) testNotifier(_ http.ResponseWriter, r *http.Request) (any, error) {
	test := NotifierTest{Name: r.PathValue("name"), Receivers: []ReceiverTest{}}
	var results map[string]error
	ok := false
	if s.config.TestNotifier != nil {
		results, ok = s.config.TestNotifier(r.Context(), test.Name)
	}
	if !ok {
		return nil, errorf(http.StatusNotFound, "there is no notifier %q", test.Name)
	}
	for _, receiver := range slices.Sorted(maps.Keys(results)) {
		one := ReceiverTest{Receiver: receiver}
		if err := results[receiver]; err != nil {
			one.Error = err.Error()
		}
		test.Receivers = append(test.Receivers, one)
	}
	return test, nil
}

// Notifiers returns how the receivers of notifiers fare.
func (c *Client) Notifiers(ctx context.Context) (NotifierList, error) {
	return get[NotifierList](ctx, c, "/v1/notifiers", nil)
}

// TestNotifier sends a test notice to each receiver of a notifier. It needs what Reload needs.
func (c *Client) TestNotifier(ctx context.Context, name string) (NotifierTest, error) {
	return post[NotifierTest](ctx, c, "/v1/notifiers/"+escape(name)+"/test", nil)
}
