//go:build !unix

package files

// wait does nothing: a read of a pipe waits for its writer.
func (p *pipe) wait() error { return nil }
