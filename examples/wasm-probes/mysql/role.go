package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

// takesWrites checks that the server is a primary.
func (c *session) takesWrites(ctx context.Context) guest.Result {
	all, err := c.all(ctx, "SELECT @@global.read_only AS read_only")
	switch {
	case err != nil:
		return failed(err)
	case len(all) != 1:
		return guest.Fail("mysql.protocol", "the server does not say whether it takes writes")
	}
	if text := all[0]["read_only"]; text != "0" && text != "OFF" {
		return guest.Fail("mysql.role", "the server is read only")
	}
	return guest.Succeed("primary")
}

// replicates checks that the server is a replica.
func (c *session) replicates(ctx context.Context, most time.Duration) guest.Result {
	channels, err := c.all(ctx, "SHOW REPLICA STATUS")
	if err != nil {
		return failed(err)
	}
	if len(channels) == 0 {
		return guest.Fail("mysql.role", "the server is not a replica")
	}
	var r guest.Result
	for _, status := range channels {
		if r = judgeChannel(status, most); r.Outcome != guest.Success {
			break
		}
	}
	return r
}

// judgeChannel returns the result of one replication channel.
func judgeChannel(status row, most time.Duration) guest.Result {
	if status["io_running"] != "Yes" {
		return guest.Fail("mysql.link", fmt.Sprintf("the replica has no connection to its primary: %.300q", status["last_io_error"]))
	}
	if status["sql_running"] != "Yes" {
		return guest.Fail("mysql.applier", fmt.Sprintf("the replica does not apply changes: %.300q", status["last_sql_error"]))
	}
	seconds, err := strconv.ParseUint(status["seconds_behind"], 10, 32)
	lag := time.Duration(seconds) * time.Second
	switch {
	case err != nil && most > 0:
		return guest.Fail("mysql.lag", "the replica cannot determine its lag")
	case err != nil:
		return guest.Succeed("replica whose lag is not known")
	case most > 0 && lag > most:
		return guest.Fail("mysql.lag", fmt.Sprintf("the replica lags by %v, at most %v are allowed", lag, most))
	}
	return guest.Succeed(fmt.Sprintf("replica whose lag is %v", lag))
}

// row maps column names, as returned by plainName, to values.
type row map[string]string

// all returns the rows of a query.
func (c *session) all(ctx context.Context, sql string) ([]row, error) {
	rows, err := c.rows(ctx, sql)
	if err != nil {
		return nil, err
	}
	defer c.end(rows)
	var all []row
	for len(all) < maxRows {
		values, err := c.next(rows)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		r := make(row)
		for i, name := range rows.Columns() {
			r[plainName(name)] = values[i]
		}
		all = append(all, r)
	}
	return all, nil
}

// plainName returns a name for a column of SHOW REPLICA STATUS that is the same in all versions of
// both servers: io_running for Replica_IO_Running and Slave_IO_Running, and seconds_behind for
// Seconds_Behind_Source and Seconds_Behind_Master.
func plainName(name string) string {
	name = strings.ToLower(name)
	name = strings.TrimPrefix(strings.TrimPrefix(name, "replica_"), "slave_")
	return strings.TrimSuffix(strings.TrimSuffix(name, "_source"), "_master")
}
