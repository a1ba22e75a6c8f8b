package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLinesAreWrappedBetweenWords(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{Unlimited, "one two  three éclair"},
		{21, "one two  three éclair"},
		{20, "one two  three\n> éclair"},
		{9, "one two \n> three\n> éclair"},
		{2, "one\n> two\n> \n> three\n> éclair"},
	} {
		if got := (Screen{Width: c.width}).Wrap("one two  three éclair", "> "); got != c.want {
			t.Errorf("of %d columns: %q, want %q", c.width, got, c.want)
		}
	}
}

func TestTextIsCutToItsWidth(t *testing.T) {
	for width, want := range map[int]string{-1: "", 0: "", 1: "…", 3: "äö…", 4: "äöüß", 5: "äöüß"} {
		if got := Cut("äöüß", width); got != want {
			t.Errorf("of %d columns: %q, want %q", width, got, want)
		}
	}
}

func TestProgressIsShownAfterASecondAndDisappears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := startProgress(&out, 40, "reading the configuration")
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if out.Len() > 0 {
			t.Errorf("within a second: %q", out.String())
		}
		p.Step("reading the configuration") // the race detector verifies that the text has been read
		time.Sleep(200 * time.Millisecond)
		p.Step("compiling the plugin " + strings.Repeat("x", 100))
		time.Sleep(time.Second)
		p.Stop()
		p.Stop()
		want := "\r\x1b[Kreading the configuration, 1s\r" + "\r\x1b[Kcompiling the plugin xxxxxxxxxxxxxxxxx…\r" + "\r\x1b[K"
		if got := out.String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

func TestAFastCommandAndAPipeShowNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := startProgress(&out, 40, "reading")
		p.Stop()
		none := StartProgress(&out, "reading")
		none.Step("compiling")
		none.Stop()
		if none != nil || out.Len() > 0 {
			t.Errorf("%v shows %q", none, out.String())
		}
	})
}
