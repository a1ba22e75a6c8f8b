package command_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/command"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

func TestACommandThatCannotBeStartedForLackOfDescriptorsIsAShortage(t *testing.T) {
	for name, c := range map[string]command.Config{
		"pipes": {Command: []string{"/bin/true"}},
		"users": {Command: []string{"/bin/true"}, User: "root"}, // reads the file of users
	} {
		t.Run(name, func(t *testing.T) {
			if c.User != "" && os.Geteuid() != 0 {
				t.Skip("only root runs commands as another user")
			}
			d, err := command.New(c)
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			run := func() restart.Exit {
				end := make(chan time.Duration, 1)
				end <- time.Second
				return d.Run(t.Context(), func(b restart.Begun) { ids = append(ids, b.ID) }, end)
			}
			restore := faulttest.NoDescriptors(t)
			exit := run()
			restore()
			if !errors.Is(exit.Err, restart.ErrShortage) || !strings.Contains(exit.Err.Error(), "too many open files") {
				t.Errorf("the exit is %+v, want a shortage", exit)
			}
			d.(restart.Resumer).Resume(ids[0])
			if exit := run(); exit.Err != nil || ids[1] != ids[0] {
				t.Errorf("the exit is %+v, of the instances %v", exit, ids)
			}
		})
	}
}
