package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sonde-probe/sonde/guest"
)

// limit makes the server abort queries shortly before the attempt ends. Otherwise a query could
// wait for a lock long after the attempt, and abandoned queries would use up all connections of the
// server. MySQL and MariaDB each understand one of the comments.
func (c *session) limit(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	left := time.Until(deadline)
	left = max(left-min(left/10, 50*time.Millisecond), time.Millisecond)
	rows, err := c.rows(ctx, fmt.Sprintf("SET lock_wait_timeout = %d /*M!100101 , max_statement_time = %.3f */ /*!80000 , max_execution_time = %d */",
		max(left/time.Second, 1), left.Seconds(), left.Milliseconds()))
	var said *mysql.MySQLError
	switch {
	case errors.As(err, &said):
		return nil // another server, or a proxy, that does not support this
	case err != nil:
		return err
	}
	return c.call(rows.Close)
}

// query runs the operator's query. The detail of the result starts with known.
func (c *session) query(ctx context.Context, s *settings, known string) guest.Result {
	rows, err := c.rows(ctx, s.Query)
	if err != nil {
		return failed(err)
	}
	defer c.end(rows)
	row, err := c.next(rows)
	switch {
	case errors.Is(err, io.EOF):
		return guest.Fail("mysql.expect", "the query returns no row")
	case err != nil:
		return failed(err)
	case s.Expect != "" && row[0] != s.Expect:
		return guest.Fail("mysql.expect", fmt.Sprintf("the query returns %.200q, not %.200q", row[0], s.Expect))
	}
	return guest.Succeed(fmt.Sprintf("%s; the query returns %.200q", known, row[0]))
}

// rows runs a query. All rows must be read before the next query.
func (c *session) rows(ctx context.Context, sql string) (rows driver.Rows, err error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	err = c.call(func() (err error) {
		rows, err = q.QueryContext(ctx, sql, nil)
		return err
	})
	return rows, err
}

// next returns the next row as text, or io.EOF. A row has at least one column.
func (c *session) next(rows driver.Rows) ([]string, error) {
	values := make([]driver.Value, len(rows.Columns()))
	if len(values) == 0 {
		return nil, io.EOF
	}
	if err := c.call(func() error { return rows.Next(values) }); err != nil {
		return nil, err
	}
	row := make([]string, len(values))
	for i, v := range values {
		row[i] = text(v)
	}
	return row, nil
}

// maxRows is the maximum number of rows that are read.
const maxRows = 64

// end reads the remaining rows, up to maxRows. If there are more, the connection is later closed
// while rows are pending, which the server logs.
func (c *session) end(rows driver.Rows) {
	for range maxRows {
		if _, err := c.next(rows); err != nil {
			_ = c.call(rows.Close) // no error is possible
			return
		}
	}
}

// text returns a value as the server sent it, and "" for NULL.
func text(v driver.Value) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []byte:
		return string(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'f', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
