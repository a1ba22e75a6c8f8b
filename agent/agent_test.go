package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/agent"
	"github.com/sonde-probe/sonde/config"
)

// part records its calls in a list that all parts share.
type part struct {
	name   string
	list   *[]string
	planNo error // returned by Plan
	runNo  error // returned by Run
	holds  bool
}

// of returns the part in the form that an Agent uses.
func (p *part) of() agent.Part { return agent.Part{Name: p.name, Plan: p.plan, Run: p.run} }

func (p *part) plan(*config.Config) (agent.Change, error) {
	p.add("plan")
	if p.planNo != nil {
		return agent.Change{}, p.planNo
	}
	c := agent.Change{Commit: func() { p.add("commit") }, Discard: func() { p.add("discard") }}
	if p.holds {
		c.Hold = func() { p.add("hold") }
	}
	return c, nil
}

func (p *part) run(ctx context.Context) error {
	if p.runNo != nil {
		return p.runNo
	}
	<-ctx.Done()
	return nil
}

func (p *part) add(what string) { *p.list = append(*p.list, what+" "+p.name) }

var errBroken = errors.New("broken")

func TestAConfigurationComesIntoAllPartsOrNone(t *testing.T) {
	for name, test := range map[string]struct {
		broken int // index of the part whose Plan fails, from 1; 0 if none fails
		commit bool
		want   []string
	}{
		"all parts plan": {commit: true, want: []string{
			"plan gateways", "plan groups", "plan engine", "hold groups", "commit engine", "commit groups", "commit gateways"}},
		"nobody wants it":   {want: []string{"plan gateways", "plan groups", "plan engine", "discard engine", "discard groups", "discard gateways"}},
		"the first fails":   {broken: 1, want: []string{"plan gateways", "plan groups", "plan engine", "discard groups", "discard gateways"}},
		"one between fails": {broken: 2, want: []string{"plan gateways", "plan groups", "discard gateways"}},
		"the last fails":    {broken: 3, want: []string{"plan gateways"}},
	} {
		t.Run(name, func(t *testing.T) {
			var list []string
			parts := []*part{{name: "engine", list: &list}, {name: "groups", list: &list, holds: true}, {name: "gateways", list: &list}}
			if test.broken > 0 {
				parts[test.broken-1].planNo = errBroken
			}
			p, err := agent.New(parts[0].of(), parts[1].of(), parts[2].of()).Plan(&config.Config{})
			switch {
			case test.broken > 0:
				if want := parts[test.broken-1].name + ": broken"; !errors.Is(err, errBroken) || err.Error() != want {
					t.Errorf("the error is %v, want %q", err, want)
				}
			case err != nil:
				t.Fatal(err)
			case test.commit:
				p.Commit()
			default:
				p.Discard()
			}
			if !slices.Equal(list, test.want) {
				t.Errorf("got %q, want %q", list, test.want)
			}
		})
	}
}

func TestAPartThatFailsEndsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []string
		a := agent.New((&part{name: "engine", list: &list}).of(), (&part{name: "gateways", list: &list, runNo: errBroken}).of())
		if err := a.Run(t.Context()); !errors.Is(err, errBroken) || err.Error() != "gateways: broken" {
			t.Errorf("Run returned %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := agent.New((&part{name: "engine", list: &list}).of()).Run(ctx); err != nil {
			t.Errorf("Run returned %v at its end", err)
		}
	})
}
