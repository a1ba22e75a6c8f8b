package handlers

import (
	"testing"
)

func TestStringOfVariablesHidesTheirValues(t *testing.T) {
	var v variables
	for _, s := range []string{"a=secret", "b=x=y"} {
		if err := v.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	if v.String() != "a,b" || v[1].Value != "x=y" {
		t.Errorf("variables are %q, %+v", v.String(), v)
	}
	if v.Set("=x") == nil {
		t.Error("a variable without a name was accepted")
	}
}
