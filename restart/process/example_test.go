package process_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
)

// A program that supervises one command for a minute.
func Example() {
	d, err := process.New(process.Config{Target: "worker", Command: []string{"./bin/worker", "-v"}})
	if err != nil {
		log.Fatal(err)
	}
	end := make(chan time.Duration, 1)
	time.AfterFunc(time.Minute, func() { end <- 30 * time.Second })
	exit := d.Run(context.Background(), func(b restart.Begun) { fmt.Println("runs as", b.ID) }, end)
	fmt.Println("ended with", exit.Code, exit.Output)
	os.Exit(exit.Code)
}
