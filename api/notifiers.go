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
	Output   string `json:"output"`   // kind of the output, such as "alertmanager"
	Receiver string `json:"receiver"` // name of the receiver, such as "http://am-1:9093"
	State    string `json:"state"`    // "up_to_date"; "failing" while Error is set; "behind" while transitions are pending

	Firing       int       `json:"firing"`                // number of targets and groups in trouble, by the notices that it has accepted
	Held         int       `json:"held"`                  // number in trouble that are not reported now: paused ones, and those that the engine doubts
	Pending      uint64    `json:"pending"`               // number of transitions of all targets that were not reported yet
	PendingSince time.Time `json:"pendingSince,omitzero"` // when the first of them occurred

	Sent    uint64    `json:"sent"`          // number of notices that it has accepted
	Last    time.Time `json:"last,omitzero"` // when it last accepted one
	Dropped uint64    `json:"dropped"`       // number of notices that it has rejected; they are not sent again
	Lost    uint64    `json:"lost"`          // number of transitions of all targets that the history dropped before they were reported

	Errors     uint64    `json:"errors"`              // number of failed attempts to send notices
	Error      string    `json:"error,omitempty"`     // of the latest attempt; empty if it has succeeded
	ErrorSince time.Time `json:"errorSince,omitzero"` // when the current series of failures began
}

// The states of a Notifier.
const (
	NotifierUpToDate = "up_to_date"
	NotifierFailing  = "failing" // the latest attempt has failed
	NotifierBehind   = "behind"  // transitions are pending
)

// NotifierTest is the response to a test of a notifier.
type NotifierTest struct {
	Name      string         `json:"name"`
	Receivers []ReceiverTest `json:"receivers"` // sorted by name
}

// ReceiverTest is whether a receiver has accepted a test notice.
type ReceiverTest struct {
	Receiver string `json:"receiver"`
	Error    string `json:"error,omitempty"` // empty if it has accepted it
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

// Notifiers returns the status of each receiver of each notifier.
func (c *Client) Notifiers(ctx context.Context) (NotifierList, error) {
	return get[NotifierList](ctx, c, "/v1/notifiers", nil)
}

// TestNotifier sends a test notice to each receiver of a notifier. It needs the same access as Reload.
func (c *Client) TestNotifier(ctx context.Context, name string) (NotifierTest, error) {
	return post[NotifierTest](ctx, c, "/v1/notifiers/"+escape(name)+"/test", nil)
}
