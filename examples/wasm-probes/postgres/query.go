package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sonde-probe/sonde/guest"
)

// query runs the operator's query. The detail of the result starts with known.
func query(ctx context.Context, c session, s *settings, known string) guest.Result {
	got, err := first(ctx, c, limited(ctx, s.Query))
	switch {
	case errors.Is(err, errNoRow):
		return guest.Fail("postgres.expect", errNoRow.Error())
	case err != nil:
		return failed(err)
	case s.Expect != "" && got != s.Expect:
		return guest.Fail("postgres.expect", fmt.Sprintf("the query returns %.200q, not %.200q", got, s.Expect))
	}
	return guest.Succeed(fmt.Sprintf("%s; the query returns %.200q", known, got))
}

var errNoRow = errors.New("the query returns no row")

// maxRows is the maximum number of rows that are read.
const maxRows = 64

// first returns the first column of a query's first row, as text. If there are more than maxRows
// rows, the connection is closed, which the server logs.
func first(ctx context.Context, c session, sql string) (text string, err error) {
	answer := c.Exec(ctx, sql)
	for answer.NextResult() {
		rows := answer.ResultReader()
		if !rows.NextRow() {
			continue
		}
		if row := rows.Values(); len(row) > 0 {
			text = string(row[0])
		}
		for range maxRows {
			if !rows.NextRow() {
				return text, answer.Close()
			}
		}
		return text, nil
	}
	if err := answer.Close(); err != nil {
		return "", err
	}
	return "", errNoRow
}

// limited returns a query that the server aborts shortly before the attempt ends. Otherwise it
// could wait for a lock long after the attempt, and abandoned queries would use up all connections
// of the server. LOCAL is for poolers, which pass the connection on to other clients.
func limited(ctx context.Context, sql string) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return sql
	}
	left := time.Until(deadline)
	left -= min(left/10, 50*time.Millisecond)
	return fmt.Sprintf("SET LOCAL statement_timeout = %d; %s", max(left.Milliseconds(), 1), sql)
}

// askRecovery queries whether the server is a standby and, if so, the age of its last change in
// seconds. The age is 0 if the standby is connected to its primary and has replayed all received
// changes, and NULL if it has replayed no change since its start.
const askRecovery = `SELECT pg_is_in_recovery(), CASE
	WHEN NOT pg_is_in_recovery() THEN 0
	WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() AND EXISTS (SELECT FROM pg_stat_wal_receiver) THEN 0
	ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) END`

// unknown is the lag of a standby that cannot determine it.
const unknown time.Duration = -1

// recovery queries and checks the server's role.
func recovery(ctx context.Context, c session, s *settings) guest.Result {
	results, err := c.Exec(ctx, limited(ctx, askRecovery)).ReadAll()
	if err != nil {
		return failed(err)
	}
	role, lag, ok := parseRecovery(results)
	switch {
	case !ok:
		return guest.Fail("postgres.protocol", "the server does not say what its role is")
	case s.Role != "" && role != s.Role:
		return guest.Fail("postgres.role", fmt.Sprintf("the server is a %s, not a %s", role, s.Role))
	case role == primary:
		return guest.Succeed(role)
	case lag == unknown && s.MaxLag > 0:
		return guest.Fail("postgres.lag", "the standby has replayed no change since its start, and is disconnected from its primary or behind it")
	case lag == unknown:
		return guest.Succeed("standby that has not seen a change since its start")
	case s.MaxLag > 0 && lag > s.MaxLag:
		return guest.Fail("postgres.lag", fmt.Sprintf("the last change that the standby has is %v old, at most %v are allowed", lag, s.MaxLag))
	}
	return guest.Succeed(fmt.Sprintf("standby whose lag is %v", lag))
}

// parseRecovery parses the result of askRecovery, which is the last one.
func parseRecovery(results []*pgconn.Result) (role string, lag time.Duration, ok bool) {
	if len(results) == 0 {
		return "", 0, false
	}
	rows := results[len(results)-1].Rows
	if len(rows) != 1 || len(rows[0]) != 2 {
		return "", 0, false
	}
	if lag, ok = parseSeconds(string(rows[0][1])); !ok {
		return "", 0, false
	}
	role, ok = map[string]string{"t": standby, "f": primary}[string(rows[0][0])]
	return role, lag, ok
}

// parseSeconds parses a number of seconds. A negative number, which means that the primary's clock
// is ahead, becomes 0.
func parseSeconds(text string) (time.Duration, bool) {
	if text == "" {
		return unknown, true
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds > -1e9 && seconds < 1e9) { // also rejects NaN
		return 0, false
	}
	return time.Duration(max(seconds, 0) * float64(time.Second)).Round(time.Millisecond), true
}
