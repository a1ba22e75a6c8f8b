// Redis is a plugin that checks that a Redis or Valkey server serves requests, and the state of its
// replication.
package main

import (
	"bufio"
	"context"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port        string        `sonde:"port" default:"6379" doc:"a number from 1 to 65535, or the name of one of the target's ports"`
	Username    string        `sonde:"username" doc:"the user to log in as; default: the default user"`
	Password    string        `sonde:"password,sensitive" doc:"its password; default: no login"`
	Role        string        `sonde:"role" doc:"the expected role: primary or replica; default: either"`
	MaxLag      time.Duration `sonde:"max_lag" doc:"the maximum time since a replica has heard from its primary, in whole seconds; default: unlimited"`
	MinReplicas int           `sonde:"min_replicas" doc:"the minimum number of replicas of a primary whose lag is at most max_lag; default 0"`
	Write       string        `sonde:"write" doc:"a key to set in each attempt, which expires after a minute: only a server that accepts writes succeeds; default: nothing is written"`
	TLS         *guest.TLS    `sonde:"tls" doc:"connect over TLS"`

	commands []byte // sent at once
}

// The roles, and Redis' names for them.
const (
	primary = "primary"
	replica = "replica"
)

// Prepare encodes the commands.
func (s *settings) Prepare() error {
	switch {
	case s.Role != "" && s.Role != primary && s.Role != replica:
		return &guest.FieldError{Field: "role", Problem: "must be primary or replica"}
	case s.MaxLag < 0 || s.MaxLag%time.Second != 0:
		return &guest.FieldError{Field: "max_lag", Problem: "must be whole seconds"}
	case s.MinReplicas < 0:
		return &guest.FieldError{Field: "min_replicas", Problem: "must not be negative"}
	case s.MinReplicas > 0 && s.Role == replica:
		return &guest.FieldError{Field: "min_replicas", Problem: "goes with a primary only"}
	case s.Write != "" && s.Role == replica:
		return &guest.FieldError{Field: "write", Problem: "goes with a primary only: a replica refuses writes"}
	case s.Username != "" && s.Password == "":
		return &guest.FieldError{Field: "password", Problem: "must be set, as username is"}
	}
	switch {
	case s.Username != "":
		s.commands = appendCommand(s.commands, "AUTH", s.Username, s.Password)
	case s.Password != "":
		s.commands = appendCommand(s.commands, "AUTH", s.Password)
	}
	s.commands = appendCommand(s.commands, "PING")
	if s.Write != "" {
		s.commands = appendCommand(s.commands, "SET", s.Write, "written by a probe", "EX", "60")
	}
	if s.replication() {
		s.commands = appendCommand(s.commands, "INFO", "replication")
	}
	return nil
}

// replication reports whether the settings are about replication.
func (s *settings) replication() bool { return s.Role != "" || s.MaxLag > 0 || s.MinReplicas > 0 }

// attempt makes one attempt.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	s := t.Settings
	c, err := t.DialPort(ctx, "tcp", s.Port, s.TLS)
	if err != nil {
		return guest.FailWith("redis.dial", err)
	}
	defer c.Close()
	if _, err := c.Write(s.commands); err != nil {
		return guest.FailWith("redis.write", err)
	}
	in := bufio.NewReaderSize(c, maxLine)
	text, err := s.read(in)
	switch {
	case err != nil:
		return guest.FailWith("redis.protocol", err)
	case !s.replication():
		return guest.Succeed("PONG")
	}
	return parseReplication(text).judge(s)
}

// read reads the replies to the commands, and returns the last one.
func (s *settings) read(in *bufio.Reader) (text string, err error) {
	if s.Password != "" {
		err = expect(in, "OK")
	}
	if err == nil {
		err = expect(in, "PONG")
	}
	if err == nil && s.Write != "" {
		err = expect(in, "OK")
	}
	if err == nil && s.replication() {
		text, err = readReply(in)
	}
	return text, err
}

// expect reads a reply, and returns an error unless it is want.
func expect(in *bufio.Reader, want string) error {
	text, err := readReply(in)
	if err == nil && text != want {
		err = guest.Problem("redis.protocol", "the server says "+quote(text)+" instead of "+want)
	}
	return err
}

// reasons maps the code of an error reply to a reason.
var reasons = map[string]string{
	"LOADING":    "redis.loading",
	"NOAUTH":     "redis.auth",
	"WRONGPASS":  "redis.auth",
	"NOPERM":     "redis.auth",
	"MASTERDOWN": "redis.link",
	"BUSY":       "redis.busy",
	"MISCONF":    "redis.misconfigured",
	"READONLY":   "redis.role",
	"NOREPLICAS": "redis.replicas",
	"OOM":        "redis.memory",
}

func reasonOf(text string) string {
	word, rest, _ := strings.Cut(text, " ")
	if reason, ok := reasons[word]; ok {
		return reason
	}
	if strings.HasPrefix(rest, "AUTH ") || strings.Contains(rest, "invalid password") { // before Redis 6
		return "redis.auth"
	}
	return "redis.error"
}

func init() {
	guest.Register(guest.Plugin{
		Name: "redis", Version: "1.0.0", Doc: "asks a Redis server whether it serves, whether it accepts writes, and about its replication",
	}, attempt)
}

func main() { guest.Main() }
