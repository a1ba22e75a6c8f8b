//go:build !wasip1

package guest_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

// settings are the fields of the plugin's handler block.
type settings struct {
	Port string        `sonde:"port,required" doc:"a number, or the name of one of the target's ports"`
	Say  string        `sonde:"say" default:"PING" doc:"the line to send"`
	Slow time.Duration `sonde:"slow" default:"500ms" doc:"a response that takes longer is a warning"`
}

// Prepare validates the settings. It is optional.
func (s *settings) Prepare() error {
	if s.Slow <= 0 {
		return &guest.FieldError{Field: "slow", Problem: "must be greater than 0"}
	}
	return nil
}

// attempt makes one attempt.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	start := time.Now()
	c, err := t.Dial(ctx, "tcp", ":"+t.Settings.Port)
	if err != nil {
		return guest.FailWith("line.dial", err)
	}
	defer c.Close()
	response := make([]byte, 64)
	n := 0
	if _, err = c.Write([]byte(t.Settings.Say + "\n")); err == nil {
		n, err = c.Read(response)
	}
	switch took := time.Since(start); {
	case err != nil:
		return guest.FailWith("line.broken", err)
	case took > t.Settings.Slow:
		return guest.Warn("line.slow", took.String())
	}
	return guest.Succeed(string(response[:n]))
}

// A plugin registers itself in init. Its main function only calls guest.Main.
func Example() {
	guest.Register(guest.Plugin{Name: "line", Version: "1.0.0", Doc: "asks for a line"}, attempt)
}

// A plugin's logic can be tested without WebAssembly, against a server.
func ExampleTrial() {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer server.Close()
	go func() {
		if c, err := server.Accept(); err == nil {
			fmt.Fprint(c, "PONG")
			c.Close()
		}
	}()

	port := server.Addr().(*net.TCPAddr).Port
	trial, err := guest.NewTrial(attempt, "127.0.0.1", fmt.Sprintf(`{"port": "%d", "slow": "5s"}`, port))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%+v\n", trial.Attempt(context.Background()))

	_, err = guest.NewTrial(attempt, "127.0.0.1", `{"port": "7", "slow": "0s"}`)
	fmt.Println(err)
	// Output:
	// {Outcome:success Reason: Detail:PONG}
	// slow must be greater than 0
}
