package api

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// badgePath is the start of the paths of badges, which end in badgeSuffix.
const (
	badgePath   = "/badge/"
	badgeSuffix = ".svg"
	groupPrefix = "group/" // before the name of a group
)

// maxBadgeName bounds the name on a badge, in bytes; longer names are truncated.
const maxBadgeName = 60

// badge is an image of one line for other pages: a name and its state.
type badge struct {
	Name, State, Color string
}

// The colors of the right half of a badge. White text on them has a contrast of at least 4.5.
const (
	colorGood = "#116329"
	colorBad  = "#a40e26"
	colorWarn = "#7d4e00"
	colorIdle = "#57606a"
)

// badge serves /badge/{name}.svg: the state of the target of that name or, if there is none and the name begins with
// "group/", of the group. If Config.PublicBadges is set, pages of other sites may embed it without a token.
func (s *Server) badge(w http.ResponseWriter, r *http.Request) (any, error) {
	b, err := s.config.badgeOf(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	w.Header().Set("Cache-Control", "no-cache") // an image proxy must revalidate it
	if s.config.PublicBadges {
		w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
	}
	io.WriteString(w, b.picture()) // fails only if the client has disconnected
	return nil, nil
}

// badgeOf returns the badge of a path after badgePath.
func (c *Config) badgeOf(file string) (badge, error) {
	name, isPicture := strings.CutSuffix(file, badgeSuffix)
	if !isPicture {
		return badge{}, errorf(http.StatusNotFound, "a badge ends in %s: ask for %s%s%s", badgeSuffix, badgePath, probe.CleanText(file, probe.MaxTargetName), badgeSuffix)
	}
	if t, ok := c.Engine.Target(name); ok {
		return targetBadge(t), nil
	}
	if of, isGroup := strings.CutPrefix(name, groupPrefix); isGroup {
		found, err := c.groupOf(of)
		if err != nil {
			return badge{}, err
		}
		return groupBadge(found.View()), nil
	}
	return badge{}, errorf(http.StatusNotFound, "there is no target %q; the badge of a group is %s%sNAME%s",
		probe.CleanText(name, probe.MaxTargetName), badgePath, groupPrefix, badgeSuffix)
}

func targetBadge(t engine.TargetStatus) badge {
	b := badge{Name: badgeName(t.Target), State: strings.ReplaceAll(t.State.String(), "_", " "), Color: colorIdle}
	switch {
	case t.State.Severity() == probe.SeverityCritical:
		b.Color = colorBad
	case t.State.Severity() == probe.SeverityWarning:
		b.Color = colorWarn
	case t.State == probe.StateReady, t.State == probe.StateCompleted:
		b.Color = colorGood
	}
	return b
}

func groupBadge(v *group.View) badge {
	g := newGroup(v, nil)
	b := badge{Name: badgeName(g.Name), State: g.State, Color: colorIdle}
	switch g.State {
	case probe.GatewayDown.String():
		b.Color = colorBad
	case probe.GatewayReady.String():
		b.Color = colorGood
	}
	return b
}

func badgeName(name string) string { return probe.OneLine(name, maxBadgeName) }

// The dimensions of a badge in pixels. All letters are as wide as the font's wide ones: textLength makes the text fit.
const (
	badgeLetter  = 7
	badgePadding = 7
)

// width returns the width of the half of a badge with this text.
func width(text string) int { return badgeLetter*utf8.RuneCountInString(text) + 2*badgePadding }

// picture returns the badge as SVG.
func (b badge) picture() string {
	name, state := html.EscapeString(b.Name), html.EscapeString(b.State)
	left, right := width(b.Name), width(b.State)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="20" role="img" aria-label="%s: %s">
<title>%[2]s: %[3]s</title>
<rect width="%[4]d" height="20" fill="#24292f"/>
<rect x="%[4]d" width="%[5]d" height="20" fill="%[6]s"/>
<g fill="#ffffff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="%[7]d" y="14" textLength="%[8]d">%[2]s</text>
<text x="%[9]d" y="14" textLength="%[10]d">%[3]s</text>
</g>
</svg>
`, left+right, name, state, left, right, b.Color, badgePadding, left-2*badgePadding, left+badgePadding, right-2*badgePadding)
}

// isPublicBadge reports whether a request is for a badge that is public and that pages of other sites may embed.
func (c *Config) isPublicBadge(r *http.Request) bool {
	return c.PublicBadges && (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.HasPrefix(r.URL.Path, badgePath)
}
