package status

import (
	"strings"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// column is a column of the table.
type column int

// The columns, from left to right.
const (
	columnTarget column = iota
	columnOwner
	columnState
	columnRestarts
	columnFor
	columnExit
	columnGateway
	columnAddress
	columnLabels
	columnProbe
	columnVerdict
	columnRun
	columnNext
	columnResult
	columns
)

var headers = [columns]string{"TARGET", "OWNER", "STATE", "RESTARTS", "FOR", "EXIT", "GATEWAY", "ADDRESS", "LABELS", "PROBE", "VERDICT", "RUN", "NEXT", "RESULT"}

// row is a line of the table.
type row struct {
	cells     [columns]string
	isFailing bool      // the result gets lines of its own if its column is too narrow
	state     cli.Color // of the state
	color     cli.Color // of verdict and result
}

// colorOf returns the colour of a cell.
func (r row) colorOf(c column) cli.Color {
	switch c {
	case columnState:
		return r.state
	case columnVerdict, columnResult:
		return r.color
	}
	return ""
}

// grid lays the rows of the table out. If a terminal is too narrow, the results keep the most of it.
type grid struct {
	on     cli.Screen
	rows   []row
	shown  [columns]bool
	widths [columns]int
}

const (
	gap    = "  " // between two columns
	indent = "    "

	leastResult    = 24 // columns of the terminal for the results, before a column that is not about attempts goes
	leastTarget    = 12
	wantedResult   = 40 // columns of the terminal for results that may be cut
	maxResultLines = 2  // of a row that fails
)

// text returns the table.
func (g *grid) text() string {
	head := row{cells: headers}
	for _, r := range append(g.rows, head) {
		for c, text := range r.cells {
			g.widths[c] = max(g.widths[c], utf8.RuneCountInString(text))
		}
	}
	g.fit()
	var s strings.Builder
	g.write(&s, head)
	for _, r := range g.rows {
		g.write(&s, r)
	}
	return s.String()
}

// fit leaves out columns until the results have the room that they need, and then shortens the names.
func (g *grid) fit() {
	most, want := g.room(), 0
	for _, c := range []column{columnNext, columnRun} {
		most += g.widths[c] + len(gap)
	}
	for _, r := range g.rows {
		length := utf8.RuneCountInString(r.cells[columnResult])
		if !r.isFailing || length > most { // it is cut, or gets lines of its own
			length = min(length, wantedResult)
		}
		want = max(want, length)
	}
	for _, c := range []column{columnNext, columnRun} {
		g.shown[c] = g.shown[c] && g.room() >= want
	}
	want = min(want, leastResult)
	for _, c := range []column{columnLabels, columnAddress, columnExit, columnGateway, columnFor, columnRestarts, columnOwner} {
		g.shown[c] = g.shown[c] && g.room() >= want
	}
	if missing := want - g.room(); missing > 0 {
		width := g.widths[columnTarget]
		g.widths[columnTarget] = max(width-missing, min(width, leastTarget))
	}
}

// room returns how many columns of the terminal are left for the results.
func (g *grid) room() int {
	left := g.on.Width
	for c := range columnResult {
		if g.shown[c] {
			left -= g.widths[c] + len(gap)
		}
	}
	return left
}

// write writes a row. What does not fit is cut.
func (g *grid) write(s *strings.Builder, r row) {
	result := r.cells[columnResult]
	below := r.isFailing && utf8.RuneCountInString(result) > g.room()
	if below {
		r.cells[columnResult] = ""
	}
	g.widths[columnResult] = g.on.Width
	left, blank := g.on.Width, 0
	for c, text := range r.cells {
		if !g.shown[c] {
			continue
		}
		text = cli.Cut(text, min(g.widths[c], left-blank))
		length := utf8.RuneCountInString(text)
		if length > 0 {
			s.WriteString(strings.Repeat(" ", blank) + g.on.Paint(r.colorOf(column(c)), text))
			left, blank = left-blank-length, 0
		}
		blank += g.widths[c] - length + len(gap)
	}
	s.WriteByte('\n')
	if below {
		g.writeBelow(s, result, r.color)
	}
}

// writeBelow writes the result of a row in lines of its own.
func (g *grid) writeBelow(s *strings.Builder, result string, c cli.Color) {
	narrow := cli.Screen{Width: g.on.Width - len(indent)}
	lines := strings.Split(narrow.Wrap(result, ""), "\n")
	if len(lines) > maxResultLines {
		lines = lines[:maxResultLines]
		lines[maxResultLines-1] += " …"
	}
	for _, line := range lines {
		s.WriteString(indent + g.on.Paint(c, cli.Cut(line, narrow.Width)) + "\n")
	}
}
