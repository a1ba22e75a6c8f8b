package quorum_test

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/fleet/quorum"
)

func TestDefaultsAreThreeVantagesOfWhichTwoDecide(t *testing.T) {
	want := quorum.Rule{Vantages: 3, Fail: quorum.FailMajority, Spread: quorum.SpreadZone, Min: 2}
	if got := (quorum.Rule{}).WithDefaults(); got != want {
		t.Errorf("the defaults are %+v, want %+v", got, want)
	}
	for vantages, least := range map[int]int{2: 2, 3: 2, 4: 3, 5: 3, 15: 8} {
		r := quorum.Rule{Vantages: vantages}.WithDefaults()
		if r.Min != least {
			t.Errorf("of %d vantages %d must count, want %d", vantages, r.Min, least)
		}
		if err := r.Check(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestRulesAreChecked(t *testing.T) {
	for want, r := range map[string]quorum.Rule{
		"vantages is 1; it must be from 2 to 15":                         {Vantages: 1},
		"vantages is 16; it must be from 2 to 15":                        {Vantages: 16},
		`fail is "most"; it must be one of majority, any, all`:           {Fail: "most"},
		`spread is "region"; it must be one of zone, none`:               {Spread: "region"},
		"min is 4; it must be from 1 to vantages, which is 3":            {Min: 4},
		"min is -1; it must be from 1 to vantages, which is 5":           {Vantages: 5, Min: -1},
		`fail is "x"; it must be one of majority, any, all; spread is "`: {Fail: "x", Spread: "x"},
	} {
		if err := r.WithDefaults().Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
}
