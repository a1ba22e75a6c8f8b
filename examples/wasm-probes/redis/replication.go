package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

// replication is the reply of INFO replication.
type replication struct {
	role     string
	linkUp   bool
	syncing  bool
	heard    time.Duration   // time since a replica last heard from its primary; negative if never
	replicas []time.Duration // time since a primary last heard from each online replica
}

// parseReplication parses lines of a name, a colon and a value.
func parseReplication(text string) replication {
	r := replication{heard: -1}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch {
		case name == "role":
			r.role = map[string]string{"master": primary, "slave": replica}[value]
		case name == "master_link_status":
			r.linkUp = value == "up"
		case name == "master_sync_in_progress":
			r.syncing = value == "1"
		case name == "master_last_io_seconds_ago":
			r.heard = seconds(value)
		case isReplica(name):
			r.addReplica(value)
		}
	}
	return r
}

// isReplica reports whether a name is slave0, slave1 and so on.
func isReplica(name string) bool {
	number, ok := strings.CutPrefix(name, "slave")
	_, err := strconv.Atoi(number)
	return ok && err == nil
}

// addReplica reads "ip=10.0.0.8,port=6379,state=online,offset=42,lag=1".
func (r *replication) addReplica(value string) {
	online, lag := false, time.Duration(-1)
	for part := range strings.SplitSeq(value, ",") {
		switch name, text, _ := strings.Cut(part, "="); name {
		case "state":
			online = text == "online"
		case "lag":
			lag = seconds(text)
		}
	}
	if online && lag >= 0 {
		r.replicas = append(r.replicas, lag)
	}
}

func seconds(text string) time.Duration {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return -1
	}
	return time.Duration(n) * time.Second
}

// judge checks the replication against the settings.
func (r replication) judge(s *settings) guest.Result {
	switch {
	case r.role == "":
		return guest.Fail("redis.protocol", "the server does not say what its role is")
	case s.Role != "" && r.role != s.Role:
		return guest.Fail("redis.role", fmt.Sprintf("the server is a %s, not a %s", r.role, s.Role))
	case r.role == replica:
		return r.judgeReplica(s)
	}
	near := 0
	for _, lag := range r.replicas {
		if s.MaxLag == 0 || lag <= s.MaxLag {
			near++
		}
	}
	if near < s.MinReplicas {
		return guest.Fail("redis.replicas", fmt.Sprintf("only %d of %d replicas are close enough, want at least %d", near, len(r.replicas), s.MinReplicas))
	}
	return guest.Succeed(fmt.Sprintf("primary with %d replicas", len(r.replicas)))
}

func (r replication) judgeReplica(s *settings) guest.Result {
	switch {
	case s.MinReplicas > 0:
		return guest.Fail("redis.role", "the server is a replica, and min_replicas is for a primary")
	case r.syncing:
		return guest.Fail("redis.sync", "the replica is in its initial synchronization with the primary")
	case !r.linkUp:
		return guest.Fail("redis.link", "the replica has no connection to its primary")
	case s.MaxLag > 0 && (r.heard < 0 || r.heard > s.MaxLag):
		return guest.Fail("redis.lag", fmt.Sprintf("the replica heard from its primary %v ago, at most %v are allowed", r.heard, s.MaxLag))
	}
	return guest.Succeed(fmt.Sprintf("replica that heard from its primary %v ago", max(r.heard, 0)))
}
