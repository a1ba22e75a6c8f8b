package wasmhost

import "context"

// compilation is whether a module is compiled.
type compilation struct {
	ended    chan struct{} // closed when compiling has ended
	err      error         // why it failed; set before ended is closed
	short    chan struct{} // closed when this machine has not let the module compile for long
	shortage error         // why not; set before short is closed
}

func newCompilation() *compilation {
	return &compilation{ended: make(chan struct{}), short: make(chan struct{})}
}

// end says that compiling has ended, with an error if it has failed.
func (c *compilation) end(err error) {
	c.err = err
	close(c.ended)
}

// lack says that this machine lacks the resources. Only the first call has an effect.
func (c *compilation) lack(err error) {
	if c.shortage == nil {
		c.shortage = err
		close(c.short)
	}
}

// state returns nil if the module is compiled, errCompiling, or why it could not be compiled.
func (c *compilation) state() error {
	select {
	case <-c.ended:
		return c.err
	default:
		return errCompiling
	}
}

// wait returns nil when compiling has ended, in whatever way, and an error when this machine lacks
// the resources for it, or ctx is done.
func (c *compilation) wait(ctx context.Context) error {
	select {
	case <-c.ended:
		return nil
	default:
	}
	select {
	case <-c.ended:
		return nil
	case <-c.short:
		return c.shortage
	case <-ctx.Done():
		return ctx.Err()
	}
}
