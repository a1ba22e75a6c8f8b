package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestLinesAndNamesAreCounted(t *testing.T) {
	files := fstest.MapFS{
		"shop/shop.go": {Data: []byte(`// Package shop sells.
package shop

import (
	"sync"
	"sync/atomic"

	"github.com/sonde-probe/sonde/till"
)

// Shop is open
// all day.
type Shop struct {
	till.Till
	mu    sync.Mutex
	stock atomic.Pointer[int]
	wake  chan struct{}
}

/* comment */ var Text = ` + "`" + `two
lines` + "`" + `

func (s *Shop) Sell() {
	s.wake = make(chan struct{}, 1)
	queued := wake.New()
	queue := make(chan int, 8)
	close(queue)
}

func count(s *Shop) int { return 0 } // not a method, yet one in all but name
`)},
		"till/till.go":             {Data: []byte("package till\n\ntype Till struct{}\n\nfunc (Till) Open() {}\nfunc (*Till) Close() {}\nfunc (hidden) Open() {}\n\ntype hidden int\n")},
		"shop/shop_test.go":        {Data: []byte("package shop\n\nvar Tested int\n")},
		"tests/years/years.go":     {Data: []byte("package years\n\nvar Tested int\n")},
		"shop/testdata/x.go":       {Data: []byte("no Go at all")},
		"web/node_modules/x/x.go":  {Data: []byte("package x\n")},
		".hidden/hidden.go":        {Data: []byte("package hidden\n")},
		"generated_but_no_go.text": {Data: []byte("package x\n")},
	}
	h, err := measure(files)
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	h.print(&printed)
	want := `lines of code   27 in 2 packages
                    21 shop
                     6 till
exported names  6
locks           1 mutexes, 2 channels of capacity 1, 1 atomic pointers
functions       p50 1, p90 1, longest 6 lines
more than 40 methods
more than 25 fields
`
	if printed.String() != want {
		t.Errorf("got:\n%swant:\n%s", printed.String(), want)
	}
	if n := h.methods()["shop/Shop"]; n != 4 {
		t.Errorf("shop.Shop has %d methods, want 4: Sell, count, and Open and Close of till.Till", n)
	}
	if n := h.fields()["shop/Shop"]; n != 4 {
		t.Errorf("shop.Shop has %d fields, want 4", n)
	}
}

func TestAFileThatIsNoGoIsAnError(t *testing.T) {
	if _, err := measure(fstest.MapFS{"x.go": {Data: []byte("pack age")}}); err == nil {
		t.Error("no error")
	}
}
