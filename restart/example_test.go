package restart_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
)

// A program that runs and restarts one command until it gets SIGTERM.
func Example() {
	worker, err := process.New(process.Config{Target: "worker", Command: []string{"./bin/worker", "-v"}})
	if err != nil {
		log.Fatal(err)
	}
	e := engine.New(engine.Config{}) // its probes are missing here
	c, err := restart.New(restart.Config{Engine: e, Budget: restart.Budget{Max: 3, Per: time.Minute}})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Apply(map[string]restart.Unit{"worker": {Driver: worker, Policy: restart.OnFailure}}); err != nil {
		log.Fatal(err)
	}

	running, end := context.WithCancel(context.Background())
	defer end() // the engine stops after the worker
	go func() { _ = e.Run(running) }()

	terminated, stop := signal.NotifyContext(running, syscall.SIGTERM)
	defer stop()
	if err := c.Run(terminated); err != nil {
		log.Print(err)
	}
}
