package wasmhost

import "context"

// compilation is the state of a module's compilation.
type compilation struct {
	ended    chan struct{} // closed when the compilation has finished
	err      error         // the error, if it failed; set before ended is closed
	short    chan struct{} // closed when this machine has lacked the resources for too long
	shortage error         // the resource error; set before short is closed
}

func newCompilation() *compilation {
	return &compilation{ended: make(chan struct{}), short: make(chan struct{})}
}

// end records that the compilation has finished, with an error if it failed.
func (c *compilation) end(err error) {
	c.err = err
	close(c.ended)
}

// lack records that this machine lacks the resources to compile. Only the first call has an effect.
func (c *compilation) lack(err error) {
	if c.shortage == nil {
		c.shortage = err
		close(c.short)
	}
}

// state returns nil if the module is compiled, errCompiling while it is being compiled, or the
// error of the compilation.
func (c *compilation) state() error {
	select {
	case <-c.ended:
		return c.err
	default:
		return errCompiling
	}
}

// wait returns nil when the compilation has finished, successfully or not. It returns an error if
// this machine lacks the resources, or when ctx is done.
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
