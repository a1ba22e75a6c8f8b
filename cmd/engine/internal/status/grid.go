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

// row is a row of the table.
type row struct {
	cells     [columns]string
	isFailing bool      // the result gets its own lines if its column is too narrow
	state     cli.Color // colour of the state
	color     cli.Color // colour of the verdict and the result
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

// grid lays out the rows of the table. On a narrow terminal the results get most of the width.
type grid struct {
	on     cli.Screen
	rows   []row
	shown  [columns]bool
	widths [columns]int
}

const (
	gap    = "  " // between two columns
	indent = "    "

	leastResult    = 24 // minimum width of the results; columns that are not about attempts are dropped to reach it
	leastTarget    = 12
	wantedResult   = 40 // preferred width of results that may be cut
	maxResultLines = 2  // for a row that fails
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

// fit drops columns until the results have the width that they need, and then shortens the targets' names.
func (g *grid) fit() {
	most, want := g.room(), 0
	for _, c := range []column{columnNext, columnRun} {
		most += g.widths[c] + len(gap)
	}
	for _, r := range g.rows {
		length := utf8.RuneCountInString(r.cells[columnResult])
		if !r.isFailing || length > most { // the result is cut, or gets its own lines
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

// room returns the width that is left for the results.
func (g *grid) room() int {
	left := g.on.Width
	for c := range columnResult {
		if g.shown[c] {
			left -= g.widths[c] + len(gap)
		}
	}
	return left
}

// write writes a row, and cuts cells that do not fit.
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

// writeBelow writes the result of a row on its own lines below the row.
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
