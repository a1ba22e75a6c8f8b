//go:build !wasip1

package guest

import (
	"fmt"
	"testing"
)

func TestAProblemKeepsItsReason(t *testing.T) {
	got := FailWith("line.protocol", fmt.Errorf("greeting: %w", Problem("line.banner", "the server says no")))
	if want := (Result{Failure, "line.banner", "greeting: the server says no"}); got != want {
		t.Errorf("got %+v", got)
	}
}
